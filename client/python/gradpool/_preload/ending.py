"""The end of a forked worker. Python's own end writes to each object of each module, so the process
would get a copy of all memory that it shares with the parent: 1.5 s of CPU with torch, in which its
slot is not free. A worker ends after its exit functions and the finalizers of its script's objects
instead. Python's own end follows if threads of the script still run, or a tool measures the script.
Objects of other modules are not finalized, but their open files are written."""
import gc
import io
import os
import sys
import threading

from .._native import failing
from .._process import threads

_codes = []     # the exit code of the worker, once its script has ended


def note(code):
    """Called when the script has ended, with the value of its SystemExit; None: no exception."""
    _codes[:] = [code & 0xff if isinstance(code, int) else int(code is not None)]


def end():
    """The last exit function: registered before all others. No effect in a process that is no
    worker, or ends by an exception that Python handles."""
    if not _codes:
        return
    # registered before end(), when the package was imported
    failing._keep_end()
    threads._end_all()
    if _is_observed() or not _flush():
        return
    _finalize()
    _flush_files()
    if _flush():
        os._exit(_codes[0])


def _is_observed():
    """Returns whether threads use the objects of the script, or a tool such as coverage has exit
    functions that are older than end()."""
    return (threading.active_count() > 1 or 'coverage' in sys.modules
            or sys.gettrace() is not None or sys.getprofile() is not None)


def _flush_files():
    """Writes the buffers of open files, which Python's own end closes. The collector lists only
    objects that are newer than the fork."""
    for one in gc.get_objects():
        if issubclass(type(one), io.IOBase):
            try:
                one.flush()
            except (OSError, ValueError, AttributeError):
                pass    # closed, or Python would also ignore the failure


def _finalize():
    """Drops the script's objects, as Python does: first what an exception holds."""
    for name in 'last_type', 'last_value', 'last_traceback':
        setattr(sys, name, None)
    script = sys.modules['__main__'].__dict__
    for name in list(script):
        if not name.startswith('__'):
            script[name] = None
    gc.collect()


def _flush():
    """Returns whether all buffered output was written. Otherwise Python's own end names the
    failure."""
    try:
        for stream in sys.stdout, sys.stderr:
            if stream is not None and not stream.closed:
                stream.flush()
    except (OSError, ValueError, AttributeError):
        return False
    return True
