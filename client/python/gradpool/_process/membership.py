"""Jobs that the package joins for a script and shares, because a process has one rank in a job.
Every caller with the same name and endpoint in this process gets the same Membership. The process
leaves the job with the last of them, or when it ends (Y24)."""
import errno
import gc
import multiprocessing.util
import os
import socket
import threading
import time

from ..client import connect, default_timeout_ms
from ..errors import GradpoolError, mismatch

_PAUSE_S = 1.0  # pause between two joins that wait for a former job; the service waits 8 s in each

_lock = threading.RLock()   # reentrant, because a finalizer may run while it is held
_memberships = {}       # (process, endpoint, name of the job) -> Membership


class Membership:
    """A job that was joined for `users` of this process."""

    def __init__(self, key, name, endpoint, rank, workers):
        self.key, self.users = key, 0
        self.dropped = []       # one item for each user object that the script has dropped
        self.client = connect(endpoint)
        try:
            self.job = self.client.join(name, rank, workers)
        except BaseException:
            self.client.close()
            raise
        # Called at the end of a process of multiprocessing, where atexit functions do not run.
        multiprocessing.util.Finalize(self, self.client.close, exitpriority=0)

    def release(self):
        """Removes one user."""
        with _lock:
            self.users -= 1
            if self.users == 0:
                _memberships.pop(self.key, None)
        if self.users == 0:
            self.client.close()


def join(name, endpoint, rank, workers):
    """Returns the Membership of this process in that job, with one more user. None: GRADPOOL_JOB
    and GRADPOOL_ENDPOINT. Waits up to GRADPOOL_TIMEOUT_MS for the end of a former job of that
    name."""
    deadline_s = time.monotonic() + default_timeout_ms() / 1e3
    while True:
        try:
            return _join_once(name, endpoint, rank, workers)
        except GradpoolError as error:
            if error.errno != errno.ESTALE or time.monotonic() + _PAUSE_S > deadline_s:
                raise
        time.sleep(_PAUSE_S)  # without the lock, because a finalizer may have to end the former job


def _join_once(name, endpoint, rank, workers):
    key = _key_of(name, endpoint)
    with _lock:
        membership = _memberships.get(key)
        if membership is None:
            membership = _memberships[key] = _join_anew(key, name, endpoint, rank, workers)
        job = membership.job
        if (job.rank, job.workers) != (rank, workers):
            raise mismatch(f'{job} of {job.workers} has another model of this process, but the '
                           f'process group of this one says rank {rank} of {workers}: give it a '
                           'job of its own')
        membership.users += 1
    return membership


def _key_of(name, endpoint):
    return (os.getpid(), endpoint or os.environ.get('GRADPOOL_ENDPOINT'),
            name or os.environ.get('GRADPOOL_JOB'))


def collect():
    """Collects dropped models, and then their optimizers, which the hooks of these models held."""
    gc.collect()
    gc.collect()


def leave_dropped(name, endpoint, rank, workers):
    """Leaves jobs whose users have all been dropped by the script, unless join() of these arguments
    shares that job."""
    key = _key_of(name, endpoint)
    others = [one for one in list(_memberships.values()) if one.key[0] == key[0] and (
        one.key != key or (one.job.rank, one.job.workers) != (rank, workers))]
    if others:
        collect()       # on each rank at this point of the script
    for one in others:
        if len(one.dropped) == one.users:
            with _lock:
                _memberships.pop(one.key, None)
            one.client.close()


def _join_anew(key, name, endpoint, rank, workers):
    try:
        return Membership(key, name, endpoint, rank, workers)
    except GradpoolError as error:
        if (error.errno != errno.EEXIST
                or f'{socket.gethostname()}, pid {os.getpid()};' not in str(error)):
            raise
        raise GradpoolError(errno.EEXIST, f'{error}. This script has joined the job itself: give '
                            'its Job, attach(model, job=...)') from None
