"""Tensors of a GPU, staged through memory of the host.

What an operation brings goes to pinned memory of the job and is pushed from there without another
copy; what becomes of it comes back the same way. Copies are on two streams of our own, one for each
direction. They wait for what the script had begun when it called the operation; the script's stream
waits for the result, and goes on with what is still to be done to it. No thread of the script waits
for a copy: one of ours does, and pushes.

    script's stream   backward  e1                                      waits for e3  finish  e4
    our streams          wait for e1  copy out  e2           copy in  e3
    our thread                            waits for e2  push
    who waits for the operation                         result                       waits for e4

Never run on a GPU so far: the tests have one of their own making, unless torch finds a real one."""
import collections
import errno
import functools
import logging
import os
import queue
import threading
import time

import torch

from .._process.threads import start
from ..client import default_timeout_ms
from ..errors import mismatch, Timeout
from .carriers import lent

_PORTABLE = 1       # cudaHostRegisterPortable: pinned for all GPUs of the process


class Gpu:
    """The questions to torch.cuda. Tests have another one."""

    def __init__(self):
        self._ours = {}     # device -> our streams there

    def has(self, tensor):
        return tensor.is_cuda

    def scripts(self, device):
        """The stream that the calling thread uses."""
        return torch.cuda.current_stream(device)

    def ours(self, device):
        """(that of copies to the host, that of copies from there)"""
        if device not in self._ours:
            self._ours[device] = torch.cuda.Stream(device), torch.cuda.Stream(device)
        return self._ours[device]

    def on(self, stream):
        """A block in which the calling thread uses that stream."""
        return torch.cuda.stream(stream)

    def copy(self, stream, target, source):
        """Begins it; the memory of both is not another tensor's before it is over."""
        with torch.cuda.stream(stream):
            target.copy_(source, non_blocking=True)
        for tensor in target, source:
            if tensor.is_cuda:
                tensor.record_stream(stream)

    def mark(self, stream):
        """An event after all work that was begun on the stream; a waiting thread sleeps."""
        event = torch.cuda.Event(blocking=True)
        event.record(stream)
        return event

    def pin(self, address, size):
        torch.cuda.check_error(int(torch.cuda.cudart().cudaHostRegister(address, size, _PORTABLE)))

    def unpin(self, address):
        torch.cuda.cudart().cudaHostUnregister(address)


gpu = Gpu()


def is_on_gpu(tensor):
    return tensor is not None and gpu.has(tensor)


def crossing_of(job, *tensors):
    """How values of tensors, or None, come to the host and back: asked where the script calls the
    operation that they are of, on its stream."""
    devices = {one.device for one in tensors if is_on_gpu(one)}
    if not devices:
        return HERE
    if len(devices) > 1:
        raise mismatch(f"tensors on {', '.join(sorted(map(str, devices)))} in one operation, "
                       'expected one GPU')
    return Crossing(job, *devices)


class Here:
    """Like Crossing, for tensors that are on the host already."""

    def out(self, tensor):
        return tensor

    room = back = out

    def after(self, make):
        made = make()
        return lambda: made

    def begin(self, begin):
        return begin()

    def bring(self, pairs):
        for tensor, host in pairs:
            if tensor is not host:
                tensor.copy_(host)

    def land(self, finish):
        return finish()

    def follow(self):
        """Waiting threads need no word of it."""


HERE = Here()


class Crossing:
    """One operation's way to the host and back. Tensors are contiguous; those on the host already,
    and None, are what they are."""

    def __init__(self, job, device):
        self._job, self._device = job, device
        self._script, self._ours = gpu.scripts(device), gpu.ours(device)
        self._called = gpu.mark(self._script)
        self._coming = []       # (tensor, where its values land)
        self._is_out = self._is_over = None

    def room(self, tensor):
        """Memory of the host for values of such a tensor."""
        return _pinned(self._job, tensor) if is_on_gpu(tensor) else tensor

    def out(self, tensor, room=None):
        """The destination of the values, which are copied once the script's earlier
        work is over."""
        if not is_on_gpu(tensor):
            return tensor
        room, (stream, _) = self.room(tensor) if room is None else room, self._ours
        if tensor.numel():
            stream.wait_event(self._called)
            gpu.copy(stream, room, tensor.detach())
            self._is_out = gpu.mark(stream)
            _in_use.append((self._is_out, room))
        return room

    def back(self, tensor, room=None):
        """Where to put what land() brings to the tensor."""
        room = self.room(tensor) if room is None else room
        if is_on_gpu(tensor):
            self._coming.append((tensor.detach(), room))
        return room

    def after(self, make):
        """The result of make(), which is called once, when the values are out: for begin()."""
        return functools.cache(make)

    def begin(self, begin):
        """A stand-in for the Request of begin(), which is called when the values have been copied
        out."""
        return begin() if self._is_out is None else _Pushed(self._is_out, begin)

    def bring(self, pairs):
        """Copies to each tensor from the host; the script's stream waits for it."""
        pairs = [pair for pair in pairs if is_on_gpu(pair[0]) and pair[0].numel()]
        if pairs:
            _, stream = self._ours
            stream.wait_event(self._called)
            for tensor, host in pairs:
                gpu.copy(stream, tensor, host)
            event = gpu.mark(stream)
            self._script.wait_event(event)
            _in_use.append((event, [host for _, host in pairs]))

    def land(self, finish):
        """The operation is over: brings what comes back, and then has finish() do the rest on the
        script's stream. What it makes there belongs to that stream, whichever thread calls this."""
        coming, self._coming = self._coming, []
        self.bring(coming)
        with gpu.on(self._script):
            found = finish()
        self._is_over = gpu.mark(self._script)
        self.follow()
        return found

    def follow(self):
        """Whatever the calling thread begins from here on finds the result: a Future that it
        completes hands that on."""
        gpu.scripts(self._device).wait_event(self._is_over)


def room_for(job, tensor):
    """Memory of the host for values of such a tensor, and not that tensor itself."""
    return _pinned(job, tensor) if is_on_gpu(tensor) else torch.empty_like(tensor)


def fetched(job, values, like):
    """Values of the host, on the device of `like`; for the calling thread."""
    if not gpu.has(like):
        return values
    made, crossing = torch.empty_like(values, device=like.device), Crossing(job, like.device)
    crossing.bring([(made, crossing.room(made).copy_(values))])
    return made


_lock = threading.Lock()
_in_use = collections.deque()   # (event, what must not be anybody else's before it)


def _forget_copied():
    """Neither lanes nor scripts wait for events: memory is lent again when copies are over."""
    with _lock:
        while _in_use and _in_use[0][0].query():
            _in_use.popleft()


def _pinned(job, tensor):
    """Memory of the job like that tensor; what cannot be pinned is copied all the same."""
    _forget_copied()
    flat = lent(job, tensor.numel(), tensor.dtype) if tensor.numel() else None
    if flat is None:
        return torch.empty(tensor.shape, dtype=tensor.dtype)
    try:
        job.pin(flat.data_ptr(), flat.numel() * flat.element_size(), gpu.pin, gpu.unpin)
    except RuntimeError as error:
        logging.getLogger('gradpool').info('%s: %s; a GPU copies there more slowly', job, error)
    return flat.view(tensor.shape)


class _Pushed:
    """A stand-in for a Request that begins after an event."""

    def __init__(self, event, begin):
        self._event, self._begin = event, begin
        self._request = self._error = None
        self._has_begun = threading.Event()
        _waiter().put(self)

    def run(self):
        """In our thread."""
        try:
            self._event.synchronize()
            self._request = self._begin()
        except BaseException as error:
            self._error = error
        self._begin = None
        self._has_begun.set()

    def done(self, timeout_ms=0):
        if not self._has_begun.wait(timeout_ms / 1e3):
            return False
        return self._error is not None or self._request.done(timeout_ms)

    def wait(self, timeout_ms=0):
        timeout_ms = timeout_ms or default_timeout_ms()
        until_s = time.monotonic() + timeout_ms / 1e3
        if not self._has_begun.wait(timeout_ms / 1e3):
            raise Timeout(errno.ETIMEDOUT, f'the GPU has not computed it within {timeout_ms} ms')
        if self._error is not None:
            raise self._error
        self._request.wait(max(int(1e3 * (until_s - time.monotonic())), 1))


_queue = None


def _waiter():
    """The queue of the thread that waits for events, in the order in which copies were begun."""
    global _queue
    with _lock:
        if _queue is None:
            _queue = queue.SimpleQueue()
            start(functools.partial(_run, _queue), 'gradpool-cuda',
                  functools.partial(_queue.put, None))
        return _queue


def _run(pushes):
    for push in iter(pushes.get, None):
        push.run()


def _forget():
    """A forked child has no such thread, nor the GPU."""
    global _queue, _lock
    _queue, _lock = None, threading.Lock()
    _in_use.clear()


os.register_at_fork(after_in_child=_forget)
