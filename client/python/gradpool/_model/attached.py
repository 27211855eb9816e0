"""The tensors of an attached model in its job, and the prefix of their names.

close() undeclares the tensors. They are also undeclared after the script has dropped the model, for
example after a fold of a cross-validation. With attach(optimizer=) the optimizer must be dropped,
too (Y84). Python's garbage collector frees a dropped model at a different moment on each rank.
Therefore no prefix is used twice in a job. The process does not leave the job at that moment,
because a rank that has left cannot join again before the other ranks have left, too (Y72)."""
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
_beginnings = weakref.WeakKeyDictionary()       # Job -> its _Beginnings
_gone = None    # queue of Places whose models are dropped; a thread starts with the first one


class _Beginnings:
    def __init__(self):
        # number of models for which the script has given no prefix
        self.models = 0
        # prefix that the script has given -> number of models with this prefix so far
        self.uses = collections.Counter()
        self.live = set()                       # prefixes in use by a model

    def take(self, job, prefix):
        if prefix is None:
            self.models += 1
            return f'model{self.models}/' if self.models > 1 else ''
        if prefix in self.live:
            raise mismatch(f"another model is attached to {job} with prefix '{prefix}': give each "
                           'model its own prefix')
        self.live.add(prefix)
        self.uses[prefix] += 1
        return prefix + (f'({self.uses[prefix]})/' if self.uses[prefix] > 1 else '')


class Place:
    """The place of a model in `job`.

    beginning    prefix of the names of its tensors
    tensors      set after their declaration
    is_of_group  whether the ranks of the job are those of the model's process group"""

    def __init__(self, job, membership, prefix):
        self._job, self._membership, self._prefix = job, membership, prefix
        self._process = os.getpid()
        self.is_of_group, self.tensors = membership is not None, []
        with _lock:
            beginnings = _beginnings.setdefault(job, _Beginnings())
            is_free = prefix not in beginnings.live
        if not is_free:
            collect()       # frees a dropped model with this prefix
        with _lock:
            self.beginning = beginnings.take(job, prefix)
        self._live = beginnings.live
        _start()

    def add(self, tensors):
        """Adds tensors that were declared later."""
        self.tensors += [tensor for tensor in tensors if tensor not in self.tensors]

    def give_back(self, tensors):
        """Undeclares tensors that the model no longer uses."""
        if tensors:
            self.tensors = [tensor for tensor in self.tensors if tensor not in tensors]
            _gone.put((self._job, tensors))

    def is_over(self):
        """Returns whether the tensors were undeclared, or the job was left."""
        return self._job is None or self._job.is_left()

    def close(self):
        """Undeclares the tensors, and leaves the job unless another model is attached to the
        job."""
        membership = self._membership
        if self._give_back() and membership is not None:
            membership.release()

    def drop(self):
        """Undeclares the tensors without leaving the job. A finalizer calls this method at any
        point of the program, so it acquires no lock and sends nothing."""
        membership = self._membership
        if self._give_back() and membership is not None:
            membership.dropped.append(self)

    def _give_back(self):
        """Marks the place as closed. Returns False if the place was closed before, or belongs to
        the parent process."""
        if self._process != os.getpid() or self._job is None:
            return False
        _gone.put((self._job, self.tensors))
        self._live.discard(self._prefix)
        self._job = self._membership = None
        self.tensors = []
        return True


def _start():
    """Starts the thread that undeclares. A thread is needed, because each tensor costs a request to
    the coordinator."""
    global _gone
    with _lock:
        if _gone is None:
            _gone = queue.SimpleQueue()
            threads.start(_run, 'gradpool-gone', lambda: _gone.put(None))


def _run():
    for job, tensors in iter(_gone.get, None):
        # the job was left, and the service has dropped its tensors
        with contextlib.suppress(GradpoolError):
            for tensor in tensors:
                _undeclare(job, tensor)
            job.trim()
        job = tensors = None


def _undeclare(job, tensor):
    """Undeclares a tensor. The tensor of an abandoned step remains until the job is left."""
    try:
        job.remove(tensor)
    except GradpoolError as error:
        if error.errno != errno.EBUSY:
            raise


def _forget():
    """Resets the module in a forked child, which has neither the thread nor the places."""
    global _gone, _lock
    _gone, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)
