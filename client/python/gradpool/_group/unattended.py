"""Operations of process groups that nobody waits for, nor asks about.

A script may drop what all_reduce(async_op=True) returns. Its result comes into its place all the
same: a group holds its operations until they are over, and those that nobody has taken care of for
a while are left to the process's thread (_process.completion). No operation pays for that but by a
look at whether the thread here is awake (Y74)."""
import os
import threading
import weakref

from .._process import threads

_PAUSE_S = 0.05

# a copy is used, because a set must not grow during a loop
_groups, _lock = weakref.WeakSet(), threading.Lock()
_awake = threading.Event()      # set when operations may be in progress
_is_over = threading.Event()
_has_thread = False


def watch(group):
    """Makes the thread complete the operations in group.open."""
    with _lock:
        _groups.add(group)


def wake():
    """Records that an operation has begun."""
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
        groups = group = operation = None   # no reference is held during the sleep


def _forget():
    """Resets the module in a forked child, which has no such thread."""
    global _awake, _is_over, _has_thread, _lock
    _awake, _is_over, _has_thread = threading.Event(), threading.Event(), False
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget)
