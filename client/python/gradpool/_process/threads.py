"""Threads that run until the end of the process. They end before the interpreter does (Y23)."""
import atexit
import os
import threading

# longest wait for the end of a thread, which may be waiting for a GPU
_END_S = 5.0

_started = []   # (process, thread, function that ends the thread)


def start(run, name, end):
    """Starts a thread that calls run(). At the end of the process end() is called, which makes
    run() return, and the thread is joined. A forked child has no such thread."""
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    _started.append((os.getpid(), thread, end))
    return thread


@atexit.register
def _end_all():
    """Registered at import, so it runs after the exit functions of attachments, which need these
    threads."""
    for process, thread, end in _started:
        if process == os.getpid():
            end()
            thread.join(_END_S)
