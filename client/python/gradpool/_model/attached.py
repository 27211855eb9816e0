"""Tensors of an attached model in its job, and the beginning of their names.

Both are given back by close(), or when the script has dropped the model, as it does after a fold of
a cross-validation or a trial of a sweep; with attach(optimizer=): the optimizer (Y84). Python's
garbage collector finds a dropped model at another moment on each rank. So no beginning is used
twice in a job, and the job itself is not left then: a rank that has left cannot come back before
the others have left, too (Y72)."""
import collections
import contextlib
import errno
import os
import queue
import threading
import weakref

from .._process import threads
from .._process.membership import collect
from ..errors import GradpoolError, mismatch

_lock = threading.Lock()
_beginnings = weakref.WeakKeyDictionary()       # Job -> _Beginnings
_gone = None    # queue of Places whose models are gone; their thread starts with the first Place


class _Beginnings:
    def __init__(self):
        self.models = 0                         # number of models without a prefix from the script
        # prefix from the script -> number of models that have used it
        self.uses = collections.Counter()
        self.live = set()                       # prefixes in use by a model

    def take(self, job, prefix):
        if prefix is None:
            self.models += 1
            return f'model{self.models}/' if self.models > 1 else ''
        if prefix in self.live:
            raise mismatch(f"another model is attached to {job} with prefix '{prefix}': give each "
                           'one of its own')
        self.live.add(prefix)
        self.uses[prefix] += 1
        return prefix + (f'({self.uses[prefix]})/' if self.uses[prefix] > 1 else '')


class Place:
    """A model's place in `job`.

    beginning    of its tensors' names
    tensors      to be set once they are declared
    is_of_group  the job's ranks are those of the model's process group"""

    def __init__(self, job, membership, prefix):
        self._job, self._membership, self._prefix = job, membership, prefix
        self._process = os.getpid()
        self.is_of_group, self.tensors = membership is not None, []
        with _lock:
            beginnings = _beginnings.setdefault(job, _Beginnings())
            is_free = prefix not in beginnings.live
        if not is_free:
            collect()       # the model with this prefix may have been dropped
        with _lock:
            self.beginning = beginnings.take(job, prefix)
        self._live = beginnings.live
        _start()

    def add(self, tensors):
        """Adds tensors that were declared later."""
        self.tensors += [tensor for tensor in tensors if tensor not in self.tensors]

    def give_back(self, tensors):
        """Removes tensors that are not used any more although the model is."""
        if tensors:
            self.tensors = [tensor for tensor in self.tensors if tensor not in tensors]
            _gone.put((self._job, tensors))

    def is_over(self):
        """Returns whether the tensors were returned, or the job was left."""
        return self._job is None or self._job.is_left()

    def close(self):
        """Returns the tensors, and leaves the job unless another model is still attached to it."""
        membership = self._membership
        if self._give_back() and membership is not None:
            membership.release()

    def drop(self):
        """Returns the tensors and stays in the job. This is a finalizer, which may run at any
        point, so it takes no lock and sends nothing."""
        membership = self._membership
        if self._give_back() and membership is not None:
            membership.dropped.append(self)

    def _give_back(self):
        """Marks the place as returned. False: it was returned before, or belongs to the parent
        process."""
        if self._process != os.getpid() or self._job is None:
            return False
        _gone.put((self._job, self.tensors))
        self._live.discard(self._prefix)
        self._job = self._membership = None
        self.tensors = []
        return True


def _start():
    """Runs in the thread that undeclares: each tensor needs a request to the coordinator."""
    global _gone
    with _lock:
        if _gone is None:
            _gone = queue.SimpleQueue()
            threads.start(_run, 'gradpool-gone', lambda: _gone.put(None))


def _run():
    for job, tensors in iter(_gone.get, None):
        # the job has been left, and its tensors are gone with it
        with contextlib.suppress(GradpoolError):
            for tensor in tensors:
                _undeclare(job, tensor)
            job.trim()
        job = tensors = None


def _undeclare(job, tensor):
    """Undeclares a tensor. A tensor of an abandoned step stays until the job is left."""
    try:
        job.remove(tensor)
    except GradpoolError as error:
        if error.errno != errno.EBUSY:
            raise


def _forget():
    """Resets the module in a forked child, which has no such thread and no places."""
    global _gone, _lock
    _gone, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)
