"""Tensors of a GPU, staged through memory of the host.

Values go to pinned memory of the job and from there without another copy, on a stream of our own.
It waits for what the script has begun so far; the script's stream waits for the result. No thread
of the script waits for either: one of ours does, and pushes.

    script's stream   backward  e1                                       waits for e3  step
    our stream            waits for e1  copy out  e2            copy in  e3
    our thread                              waits for e2  push
    who waits for the operation                           result

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

from ._carriers import is_plain, lent
from ._threads import start
from .client import default_timeout_ms
from .errors import Timeout

_PORTABLE = 1       # cudaHostRegisterPortable: pinned for all GPUs of the process


class Gpu:
    """What is asked of torch.cuda. Tests have another one."""

    def __init__(self):
        self._ours = {}     # device -> our stream there

    def has(self, tensor):
        return tensor.is_cuda

    def scripts(self, tensor):
        """The stream that the calling thread uses."""
        return torch.cuda.current_stream(tensor.device)

    def ours(self, tensor):
        if tensor.device not in self._ours:
            self._ours[tensor.device] = torch.cuda.Stream(tensor.device)
        return self._ours[tensor.device]

    def copy(self, stream, target, source):
        """Begins it; the memory of both is not another tensor's before it is over."""
        with torch.cuda.stream(stream):
            target.copy_(source, non_blocking=True)
        for tensor in target, source:
            if tensor.is_cuda:
                tensor.record_stream(stream)

    def mark(self, stream):
        """An event after all that was begun there; who waits for it sleeps."""
        event = torch.cuda.Event(blocking=True)
        event.record(stream)
        return event

    def pin(self, address, size):
        torch.cuda.check_error(int(torch.cuda.cudart().cudaHostRegister(address, size, _PORTABLE)))

    def unpin(self, address):
        torch.cuda.cudart().cudaHostUnregister(address)


gpu = Gpu()


def staging_of(job, tensor):
    """A Staging for tensors like this one; None: it is on the host, or travels as something else
    than it is."""
    if not gpu.has(tensor) or not tensor.numel() or not is_plain(tensor):
        return None
    return Staging(job, tensor)


class Staging:
    """Where values of a tensor of a GPU go on the host, `sent`, and where what becomes of them
    comes from, `landing`: in memory of the job, flat."""

    def __init__(self, job, tensor):
        self.sent, self.landing = _pinned(job, tensor), _pinned(job, tensor)
        self.stream, self._script, self._is_sent = gpu.ours(tensor), None, None

    def send(self, tensor):
        """Begins the copy, once what the script has begun is over."""
        self._script = gpu.scripts(tensor)
        self.stream.wait_event(gpu.mark(self._script))
        gpu.copy(self.stream, self.sent.view(tensor.shape), tensor)
        self._is_sent = gpu.mark(self.stream)

    def push(self, begin):
        """What stands for the Request of begin(), which is called when the values are there."""
        return _Pushed(self._is_sent, begin)

    def unload(self, tensor):
        """The result goes to a tensor. The script's stream waits for it, and that of the calling
        thread, which a Future that it completes hands on."""
        gpu.copy(self.stream, tensor, self.landing.view(tensor.shape))
        event = gpu.mark(self.stream)
        self._script.wait_event(event)
        gpu.scripts(tensor).wait_event(event)
        _in_use.append((event, self.landing))


_in_use = collections.deque()   # (event, what must not be anybody else's before it)


def _forget_copied():
    """Lanes do not wait for events: memory is lent again when the copy from it is over."""
    while _in_use and _in_use[0][0].query():
        _in_use.popleft()


def _pinned(job, tensor):
    """Memory of the job for that many values; what cannot be pinned is copied all the same."""
    _forget_copied()
    flat = lent(job, tensor.numel(), tensor.dtype)
    if flat is None:
        return torch.empty(tensor.numel(), dtype=tensor.dtype)
    try:
        job.pin(flat.data_ptr(), flat.numel() * flat.element_size(), gpu.pin, gpu.unpin)
    except RuntimeError as error:
        logging.getLogger('gradpool').info('%s: %s; a GPU copies there more slowly', job, error)
    return flat


class _Pushed:
    """Stands for a Request that begins when an event has come."""

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


_lock = threading.Lock()
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
