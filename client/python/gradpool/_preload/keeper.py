"""Starts the pool of a trial, for a study: the pool's child is a process like the parent, with all
modules, which forks the workers of this pool."""
import os
import socket

SOCKET = '_GRADPOOL_PRELOAD'    # "DESCRIPTOR:PROCESS" of the parent of workers, for the pool


def keep_pool(begun):
    """Called in a process that waits for the end of the pool, and sends its exit status. Returns
    the socket in the pool's child."""
    pool = os.fork()
    if pool:
        status = os.waitpid(pool, 0)[1]
        begun.send_status(os.waitstatus_to_exitcode(status))
        os._exit(0)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    child = os.fork()
    if child == 0:
        os.setsid()
        ours.close()
        return theirs
    theirs.close()
    begun.receive()
    begun.announce()
    os.set_inheritable(ours.fileno(), True)
    place = f'{ours.fileno()}:{child}'
    os.execve(begun.words[0], begun.words,
              {**begun.environment, SOCKET.encode(): place.encode()})
