"""The loop of the parent: forks a worker for each message on its socket.

A message has a byte, and two descriptors: a socket for this start, and the log of the process.
  W  a worker; serve() returns in it
  P  a pool, whose parent is a process like this one (started by a study)

The parent reads nothing from the socket of a start: the new process does. If a process between them
ends early, all copies of the descriptor are closed, and the other side sees the end of the socket.
The workers are no children of the parent: see fork_orphan()."""
import os
import socket

from .keeper import keep_pool
from .start import Start


def serve(control):
    """Sends `ready`, and forks until the socket ends. Returns a Start in each worker."""
    control.send(b'ready')
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1, 2)
        if not message:
            os._exit(0)
        begun = Start(*descriptors)
        _reap()
        if message == b'P' and _fork_keeper():
            control.close()
            control = keep_pool(begun)      # returns in the parent of the new pool's workers
            control.send(b'ready')
        elif message == b'W' and fork_orphan():
            control.close()
            return begun
        begun.close()


def fork_orphan():
    """Forks a process whose parent is the nearest process above this one that adopts orphans: the
    pool. Returns True in the new process, after the process between them has been reaped, and False
    in this one, also if no process could be made."""
    ended, held = os.pipe()
    try:
        between = os.fork()
    except OSError:
        between = -1
    if between == 0:
        _fork_last(ended, held)
        return True
    if between > 0:
        os.waitpid(between, 0)
    os.close(held)
    os.close(ended)
    return False


def _fork_last(ended, held):
    """Forks the new process, and ends this one."""
    os.close(held)
    try:
        is_between = os.fork() != 0
    except OSError:
        is_between = True
    if is_between:
        os._exit(0)
    os.read(ended, 1)       # the end of the pipe: nobody holds its other end
    os.close(ended)


def _fork_keeper():
    """Forks the process that waits for the end of a pool. Returns True there."""
    try:
        return os.fork() == 0
    except OSError:
        return False


def _reap():
    """Reads the ends of processes that have waited for a pool."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
