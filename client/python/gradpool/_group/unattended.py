"""Completes operations of process groups whose Work the script has dropped.

A script may ignore the return value of all_reduce(async_op=True). The result must still be written.
A group holds its operations until they are over. A thread of this module checks all groups from
time to time, and hands old operations for which no thread waits to the completion thread
(_process.completion). A new operation wakes this thread only if the thread sleeps (Y74)."""
import os
import threading
import weakref

from .._process import threads

_PAUSE_S = 0.05

# the loop uses a copy, because the set may grow meanwhile
_groups, _lock = weakref.WeakSet(), threading.Lock()
_awake = threading.Event()      # set when an operation may be open
_is_over = threading.Event()
_has_thread = False


def watch(group):
    """Makes the thread complete the operations in group.open."""
    with _lock:
        _groups.add(group)


def wake():
    global _has_thread
    if not _awake.is_set():
        _awake.set()
        if not _has_thread:
            _has_thread = True
            threads.start(_run, 'gradpool-unattended', _end)


def _end():
    _is_over.set()
    _awake.set()


def _run():
    while _awake.wait() and not _is_over.wait(_PAUSE_S):
        _awake.clear()
        with _lock:
            groups = list(_groups)
        for group in groups:
            for operation in list(group.open):
                operation.look_after(_PAUSE_S)
                _awake.set()
        groups = group = operation = None   # the sleeping thread must not keep these objects alive


def _forget():
    """Resets the module in a forked child, which has no such thread."""
    global _awake, _is_over, _has_thread, _lock
    _awake, _is_over, _has_thread = threading.Event(), threading.Event(), False
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget)
