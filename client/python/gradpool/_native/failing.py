"""Tells the service at a leave whether the script has failed. A pool that has adopted a worker
cannot read its exit code, and without this it would take the leave for the end of a training."""
import atexit
import contextlib
import contextvars
import opcode
import sys
import threading

from .binding import lib

_exit = sys.exit
_exits = []     # status and outermost frame of the last sys.exit() of the main thread
_has_failed = contextvars.ContextVar('has_failed', default=False)
_ends_with_error = False    # the interpreter ends, after an exception that nobody has caught


def _is_uncaught():
    # an interactive interpreter continues after an exception
    return getattr(sys, 'last_value', None) is not None and not hasattr(sys, 'ps1')


def _noted_exit(status=None):
    """As sys.exit(), whose status the interpreter shows to nobody at its end."""
    if threading.current_thread() is threading.main_thread():
        frame = sys._getframe()
        while frame.f_back is not None:
            frame = frame.f_back
        _exits[:] = [(status, frame)]
    _exit(status)


sys.exit = _noted_exit


def _exits_with_error():
    """Returns whether the interpreter ends by sys.exit() with an error. If the script has caught
    the exception, its outermost frame ends with an instruction to return."""
    return any(status not in (None, 0)
               and not opcode.opname[frame.f_code.co_code[frame.f_lasti]].startswith('RETURN')
               for status, frame in _exits)


@atexit.register
def _keep_end():
    """Finalizers of objects run later, when `sys.last_value` is deleted."""
    global _ends_with_error
    _ends_with_error = _is_uncaught() or _exits_with_error()


@contextlib.contextmanager
def leaving_with(error):
    """A block whose leaves of jobs are failures, if `error` ends the script with an error. None:
    no exception."""
    is_failure = error is not None
    if isinstance(error, SystemExit):
        is_failure = error.code not in (None, 0)
    token = _has_failed.set(_has_failed.get() or is_failure)
    try:
        yield
    finally:
        _has_failed.reset(token)


def leave(handle):
    """Leaves the job of the handle."""
    if _has_failed.get() or _ends_with_error or _is_uncaught():
        lib.gp_job_leave_failed(handle)
    else:
        lib.gp_job_leave(handle)
