"""Threads that serve a process until it ends. They have ended before the interpreter does (Y23)."""
import atexit
import os
import threading

# for a thread that cannot see at once that it should end, because a GPU may be computing
_END_S = 5.0

_started = []   # (process, thread, function that makes it return)


def start(run, name, end):
    """Starts a thread that runs run(). At the end of the process end() is called, which makes run()
    return, and the thread is joined. A forked child has none of this."""
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    _started.append((os.getpid(), thread, end))
    return thread


@atexit.register
def _end_all():
    """Registered at import: runs after attachments have been closed, which wait for these
    threads."""
    for process, thread, end in _started:
        if process == os.getpid():
            end()
            thread.join(_END_S)
