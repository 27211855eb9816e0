"""Threads that serve a process until it ends: they are over before the interpreter is (Y23)."""
import atexit
import os
import threading

_END_S = 5.0    # for a thread that cannot see its end at once: a GPU may be computing

_started = []   # (process, thread, what makes it return)


def start(run, name, end):
    """A thread that runs run(). When the process ends end() is called, has run() return, and that
    is waited for. A forked child has none of it."""
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    _started.append((os.getpid(), thread, end))
    return thread


@atexit.register
def _end_all():
    """Registered at import, so that it runs after attachments have been closed, which wait for the
    work of these threads."""
    for process, thread, end in _started:
        if process == os.getpid():
            end()
            thread.join(_END_S)
