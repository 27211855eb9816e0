"""The end of a forked worker. Python's own end writes to each object of each module, so the process
would get a copy of all memory that it shares with the parent: 1.5 s of CPU with torch, in which its
slot is not free. A worker ends after its exit functions and the finalizers of its script's objects
instead."""
import gc
import os
import sys

_codes = []     # the exit code of the worker, once its script has ended


def note(code):
    """Called when the script has ended, with the value of its SystemExit; None: no exception."""
    _codes[:] = [code & 0xff if isinstance(code, int) else int(code is not None)]


def end():
    """The last exit function: registered before all others. No effect in a process that is no
    worker, or ends by an exception that Python handles."""
    if not _codes:
        return
    if not _flush():
        return
    _finalize()
    if _flush():
        os._exit(_codes[0])


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
