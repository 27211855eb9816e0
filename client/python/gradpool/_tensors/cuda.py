"""Tensors of a GPU, staged through memory of the host.

The values of an operation are copied to pinned memory of the job and pushed from there. The result
is copied back from pinned memory. This module has two streams, one for each direction. A copy waits
for the work that was in the script's stream when the operation was called. Then a thread of this
module pushes the values, so no thread of the script waits for a copy. The script's stream waits for
the result, and then does the rest of the operation's work.

    script's stream   backward  e1                                      waits for e3  finish  e4
    our streams          wait for e1  copy out  e2           copy in  e3
    our thread                            waits for e2  push
    caller of wait()                                    result                       waits for e4

This module has never run on a real GPU: tests simulate a GPU, unless torch finds one."""
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
    """Functions of torch.cuda. Tests replace this object."""

    def __init__(self):
        self._ours = {}     # device -> the two streams of this module on the device

    def has(self, tensor):
        return tensor.is_cuda

    def scripts(self, device):
        """Returns the present stream of the calling thread."""
        return torch.cuda.current_stream(device)

    def ours(self, device):
        """Returns (the stream of copies to the host, the stream of copies back)."""
        if device not in self._ours:
            self._ours[device] = torch.cuda.Stream(device), torch.cuda.Stream(device)
        return self._ours[device]

    def on(self, stream):
        """Returns a block in which the calling thread uses that stream."""
        return torch.cuda.stream(stream)

    def copy(self, stream, target, source):
        """Starts a copy. The memory of both tensors must stay allocated and unchanged until the
        copy ends."""
        with torch.cuda.stream(stream):
            target.copy_(source, non_blocking=True)
        for tensor in target, source:
            if tensor.is_cuda:
                tensor.record_stream(stream)

    def mark(self, stream):
        """Returns an event that occurs after all work that is in the stream now. A thread that
        waits for the event sleeps."""
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
    """Returns the object that transfers the tensors between their device and the host. The script's
    thread calls this function on its stream. A tensor may be None."""
    devices = {one.device for one in tensors if is_on_gpu(one)}
    if not devices:
        return HERE
    if len(devices) > 1:
        raise mismatch(f"tensors on {', '.join(sorted(map(str, devices)))} in one operation, "
                       'expected one GPU')
    return Crossing(job, *devices)


class Here:
    """Crossing for tensors that are on the host."""

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
        """Does nothing, because threads on the host need no event."""


HERE = Here()


class Crossing:
    """The transfer of one operation to the host and back. All tensors are contiguous. Tensors on
    the host, and None, are not transferred."""

    def __init__(self, job, device):
        self._job, self._device = job, device
        self._script, self._ours = gpu.scripts(device), gpu.ours(device)
        self._called = gpu.mark(self._script)
        self._coming = []       # (tensor, memory on the host for its values)
        self._is_out = self._is_over = None

    def room(self, tensor):
        """Returns memory on the host for the values of a tensor."""
        return _pinned(self._job, tensor) if is_on_gpu(tensor) else tensor

    def out(self, tensor, room=None):
        """Starts the copy to the host, after the script's earlier work. Returns the memory of the
        copy."""
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
        """Returns memory on the host from which land() copies values to the tensor."""
        room = self.room(tensor) if room is None else room
        if is_on_gpu(tensor):
            self._coming.append((tensor.detach(), room))
        return room

    def after(self, make):
        """Returns a function for begin(), which calls make() once, after the copy to the host."""
        return functools.cache(make)

    def begin(self, begin):
        """Calls begin() after the copy to the host, and returns a replacement for its Request."""
        return begin() if self._is_out is None else _Pushed(self._is_out, begin)

    def bring(self, pairs):
        """Copies each pair to its device. The script's stream waits for the copies."""
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
        """Copies the results to their devices after the end of the operation, and then runs
        finish() on the script's stream. The results belong to that stream, whichever thread calls
        this method."""
        coming, self._coming = self._coming, []
        self.bring(coming)
        with gpu.on(self._script):
            found = finish()
        self._is_over = gpu.mark(self._script)
        self.follow()
        return found

    def follow(self):
        """Makes later work of the calling thread's stream wait for the result. If the thread
        completes a Future, its callers wait, too."""
        gpu.scripts(self._device).wait_event(self._is_over)


def room_for(job, tensor):
    """Returns new memory on the host for values of the tensor."""
    return _pinned(job, tensor) if is_on_gpu(tensor) else torch.empty_like(tensor)


def fetched(job, values, like):
    """Returns values of the host on the device of `like`, for use by the calling thread."""
    if not gpu.has(like):
        return values
    made, crossing = torch.empty_like(values, device=like.device), Crossing(job, like.device)
    crossing.bring([(made, crossing.room(made).copy_(values))])
    return made


_lock = threading.Lock()
_in_use = collections.deque()  # (event, object that must exist until the event has occurred)


def _forget_copied():
    """Drops references to memory after the end of its copies. The references are needed, because
    neither lanes nor scripts wait for the end of a copy."""
    with _lock:
        while _in_use and _in_use[0][0].query():
            _in_use.popleft()


def _pinned(job, tensor):
    """Returns memory of the job with the size of the tensor. Copies also work if the memory cannot
    be pinned."""
    _forget_copied()
    flat = lent(job, tensor.numel(), tensor.dtype) if tensor.numel() else None
    if flat is None:
        return torch.empty(tensor.shape, dtype=tensor.dtype)
    try:
        job.pin(flat.data_ptr(), flat.numel() * flat.element_size(), gpu.pin, gpu.unpin)
    except RuntimeError as error:
        logging.getLogger('gradpool').info(
            '%s: %s; copies between this memory and a GPU are slower', job, error)
    return flat.view(tensor.shape)


class _Pushed:
    """A replacement for a Request that begins after an event."""

    def __init__(self, event, begin):
        self._event, self._begin = event, begin
        self._request = self._error = None
        self._has_begun, self._is_muted = threading.Event(), False
        _waiter().put(self)

    def run(self):
        """Runs in the thread of this module."""
        try:
            self._event.synchronize()
            self._request = self._begin()
            if self._is_muted:
                self._request.mute()
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
            raise Timeout(errno.ETIMEDOUT, f'the GPU has not computed the tensors within '
                          f'{timeout_ms} ms; look at the GPU, or wait longer')
        if self._error is not None:
            raise self._error
        self._request.wait(max(int(1e3 * (until_s - time.monotonic())), 1))

    def mute(self):
        self._is_muted = True
        if self._request is not None:
            self._request.mute()


_queue = None


def _waiter():
    """Returns the queue of the thread that waits for events, in the order of the copies."""
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
    """Resets the module in a forked child, which has neither the thread nor the GPU."""
    global _queue, _lock
    _queue, _lock = None, threading.Lock()
    _in_use.clear()


os.register_at_fork(after_in_child=_forget)
