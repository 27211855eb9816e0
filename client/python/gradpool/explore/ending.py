"""The end of a study's processes: signals that must not leave one behind, and workers whose pool
was killed."""
import contextlib
import os
import signal
import threading

from .worker import VARIABLE

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def held(act=None):
    """Holds signals that end this process until the end of the block, so that no process is
    started without an owner.

      act  called at each signal, which then has no other effect; None: signals wait"""
    if threading.current_thread() is not threading.main_thread():
        yield       # Python calls handlers in the main thread only
        return
    waiting = []

    def note(number, frame):
        if act is None:
            waiting.append(number)
        else:
            act()
    before = {number: handler for number in _SIGNALS
              if (handler := signal.getsignal(number)) not in (None, signal.SIG_IGN)}
    for number in before:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if waiting:
            signal.raise_signal(waiting[0])


def end_workers(folder):
    """Ends the workers of a trial whose pool was killed. Their environment has the folder."""
    mark = f'{VARIABLE}={folder}'.encode(errors='surrogateescape')
    for name in filter(str.isdigit, os.listdir('/proc')):
        with contextlib.suppress(OSError):      # the process has ended, or is another user's
            _end_if(int(name), mark)


def _end_if(pid, mark):
    handle = os.pidfd_open(pid)     # first: the number may become that of another process
    try:
        with open(f'/proc/{pid}/environ', 'rb') as file:
            if mark in file.read().split(b'\0'):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
    finally:
        os.close(handle)
