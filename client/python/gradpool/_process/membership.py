"""Jobs that the package joins for a script. All callers in this process with the same name and
endpoint share one Membership, because a process has one rank in a job. The process leaves the job
when the last caller releases it, or when the process ends (Y24)."""
import errno
import gc
import multiprocessing.util
import os
import socket
import threading
import time

from ..client import connect, default_timeout_ms
from ..errors import GradpoolError, mismatch

# pause between two attempts to join while a former job ends; the service waits 8 s in each attempt
_PAUSE_S = 1.0

_lock = threading.RLock()   # reentrant: a finalizer may run while the lock is held
_memberships = {}       # (process, endpoint, name of the job) -> Membership


class Membership:
    """A joined job with `users`, the number of its callers in this process."""

    def __init__(self, key, name, endpoint, rank, workers, backup=None):
        self.key, self.users = key, 0
        self.dropped = []       # one item for each caller whose object the script has dropped
        self.client = connect(endpoint)
        try:
            # lanes serve no copies of parameters in a job with backup workers
            self.job = self.client.join(name, rank, workers, backup=backup,
                                        durability='none' if backup else None)
        except BaseException:
            self.client.close()
            raise
        # A process of multiprocessing runs no atexit functions, but calls this function at its end.
        self._end = multiprocessing.util.Finalize(self, self.client.close, exitpriority=0)

    def release(self):
        """Removes one caller."""
        with _lock:
            self.users -= 1
            if self.users == 0:
                _memberships.pop(self.key, None)
        if self.users == 0:
            self._end.cancel()
            self.client.close()


def join(name, endpoint, rank, workers, backup=None, waits=True):
    """Joins the job, or shares the present Membership, and adds one caller. A `name` or `endpoint`
    of None means GRADPOOL_JOB or GRADPOOL_ENDPOINT. Waits up to GRADPOOL_TIMEOUT_MS for the end of
    a former job of that name.

      backup  a Backup; None: every round waits for all ranks
      waits   False: makes one attempt, in which the service waits 8 s"""
    deadline_s = time.monotonic() + default_timeout_ms() / 1e3
    while True:
        try:
            return _join_once(name, endpoint, rank, workers, backup)
        except GradpoolError as error:
            is_late = not waits or time.monotonic() + _PAUSE_S > deadline_s
            if error.errno != errno.ESTALE or is_late:
                raise
        # the lock is not held here, because a finalizer may need the lock to leave the former job
        time.sleep(_PAUSE_S)


def _join_once(name, endpoint, rank, workers, backup):
    key = _key_of(name, endpoint)
    with _lock:
        membership = _memberships.get(key)
        if membership is None:
            membership = _memberships[key] = _join_anew(key, name, endpoint, rank, workers, backup)
        elif backup or membership.job.backup:
            raise mismatch(f'{membership.job} is used by other code of this process, and a job '
                           'with backup workers has one model only. Give attach() the name of '
                           'another job')
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
    """Frees models that the script has dropped, then their optimizers, which hooks of the models
    reference."""
    gc.collect()
    gc.collect()


def leave_dropped(name, endpoint, rank, workers):
    """Leaves each job of which the script has dropped all objects. Keeps the job that join() with
    these arguments would share."""
    key = _key_of(name, endpoint)
    others = [one for one in list(_memberships.values()) if one.key[0] == key[0] and (
        one.key != key or one.job.backup or
        (one.job.rank, one.job.workers) != (rank, workers))]
    if others:
        collect()       # every rank frees dropped models at this point of the script
    for one in others:
        if len(one.dropped) == one.users:
            with _lock:
                _memberships.pop(one.key, None)
            one.client.close()


def _join_anew(key, name, endpoint, rank, workers, backup):
    try:
        return Membership(key, name, endpoint, rank, workers, backup)
    except GradpoolError as error:
        if (error.errno != errno.EEXIST
                or f'{socket.gethostname()}, pid {os.getpid()};' not in str(error)):
            raise
        raise GradpoolError(errno.EEXIST, f'{error}. This script has joined the job itself: give '
                            'its Job, attach(model, job=...)') from None
