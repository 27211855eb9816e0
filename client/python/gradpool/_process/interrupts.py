"""Postpones Ctrl-C in backward().

During backward() C++ code of DistributedDataParallel calls Python functions: the communication
hook, or all_reduce() of a process group. If the handler of SIGINT raises KeyboardInterrupt there,
C++ replaces it by a RuntimeError. If the exception is raised before all buckets are sent, only a
part of the step is done. So the script's handler runs after the end of backward(), or during a wait
for other ranks (Y115)."""
import functools
import signal
import threading
import time

import torch

# maximum time for which a step waits for other ranks after a Ctrl-C
PATIENCE_S = 1.0

_MODULES = 'torch.autograd', 'torch.autograd.graph'     # modules that call torch's engine
_codes = set()
_of_torch = torch.autograd.backward


def put_off(function):
    """Decorates a function that the C++ code of torch's engine calls, and whose exceptions the C++
    code replaces."""
    _codes.add(function.__code__)
    return function


class _Handler:
    """Handler of SIGINT during one backward() of the main thread. `of_script`: the script's
    handler."""

    def __init__(self, of_script):
        self._of_script = of_script
        self._since_s, self._frame = None, None

    def __call__(self, number, frame):
        if self._since_s is None and _is_put_off(frame):
            self._since_s, self._frame = time.monotonic(), frame
        else:       # a second Ctrl-C is not postponed
            self._of_script(number, frame)

    def let_through(self, after_s=0):
        if self._since_s is not None and time.monotonic() - self._since_s >= after_s:
            frame, self._since_s, self._frame = self._frame, None, None
            self._of_script(signal.SIGINT, frame)


def _is_put_off(frame):
    while frame is not None:
        caller = frame.f_back
        if frame.f_code in _codes and caller and caller.f_globals.get('__name__') in _MODULES:
            return True
        frame = caller
    return False


def let_through():
    """Called while a step waits for other ranks. PATIENCE_S after a Ctrl-C, this function runs the
    script's handler, which raises an exception."""
    handler = signal.getsignal(signal.SIGINT)
    if isinstance(handler, _Handler) and threading.current_thread() is threading.main_thread():
        handler.let_through(PATIENCE_S)


@functools.wraps(_of_torch)
def _backward(*arguments, **options):
    of_script = signal.getsignal(signal.SIGINT)
    if (not callable(of_script) or isinstance(of_script, _Handler) or
            threading.current_thread() is not threading.main_thread()):
        return _of_torch(*arguments, **options)
    handler = _Handler(of_script)
    try:
        signal.signal(signal.SIGINT, handler)
        return _of_torch(*arguments, **options)
    finally:
        signal.signal(signal.SIGINT, of_script)
        handler.let_through()


def offer():
    """Replaces torch's backward() by a function that postpones SIGINT."""
    torch.autograd.backward = _backward
