"""Detects ranks of a process group that call collectives in different orders.

A tensor is identified by dtype and size. If ranks call collectives in different orders, they push
different tensors and wait for each other. A rank that has waited for _PATIENCE_S therefore sends
its newest calls with their numbers:

    rank 0   17: all_reduce of float32[6]   waits ...  sends --+--> 17 differs: Mismatch
    rank 1   17: all_reduce of float32[7]   waits ...  sends --+--> 17 differs: Mismatch

A rank that is only late sends nothing, or sends calls with other numbers. A call without a long
wait only stores its description (Y22)."""
import collections
import contextlib
import datetime
import threading
import time

from .._process.completion import is_here
from ..errors import disagreement, GradpoolError, mismatch
from . import halves
from .notices import Notices
from .operations import Operation

# Waiting time after which an operation is reported to the other ranks, and the time between two
# checks.
_PATIENCE_S = 2.0
_LOOK_S = 0.1
# Longest pause between two reports in one wait. A rank repeats its report, because the report of
# another rank may belong to an earlier wait.
_TELL_MAX_S = 30.0
# Longest wait of a rank that has found a mismatch, until other ranks have found the mismatch, too.
# Afterwards the rank may leave the job.
_FOUND_MS = 1000
# Maximum number of collectives in a report, and of words for them.
_CALLED_MAX = 64
_WORDS = 1024
RULE = 'All ranks of a group call the same collectives in the same order, of one shape and dtype'


class Order:
    """Calls of this rank in a group, and calls that other ranks have reported. `name`, `ranks`:
    those of the group. `path`: prefix of the names of its tensors."""

    def __init__(self, job, name, path, ranks):
        self._name, self._ranks = name, ranks
        self._notices = Notices(job, f'{path}/(order)', ranks, len(ranks), _WORDS)
        self._called = collections.deque(maxlen=_CALLED_MAX)
        self._count = self._told = 0
        self._due_s, self._pause_s = 0.0, _LOOK_S
        self._lock = threading.Lock()

    def note(self, place, what, tensor):
        """Stores the description of one more call. `place`: name of the tensor that this call
        shares with other ranks."""
        self._count += 1
        self._called.append((self._count, place, what, tensor.dtype, tensor.shape))

    def look(self):
        """Called during a long wait. Raises Mismatch if another rank has called another
        operation at the same place. Ignores other errors, because the operation itself raises them
        with more details."""
        if not self._lock.acquire(blocking=False):
            return      # another thread checks now
        try:
            found = None
            with contextlib.suppress(GradpoolError):
                found = self._notices.find()
            self._compare(found or ())
            with contextlib.suppress(GradpoolError):
                self._tell()
        finally:
            self._lock.release()

    def _tell(self):
        now_s = time.monotonic()
        if self._told != self._count:
            self._told, self._due_s, self._pause_s = self._count, now_s, _LOOK_S
        if not self._notices.is_left() and now_s >= self._due_s:
            self._due_s = now_s + self._pause_s
            self._pause_s = min(2 * self._pause_s, _TELL_MAX_S)
            self._notices.leave(self._mine())

    def _mine(self):
        """Returns descriptions of the newest calls, as many as fit into a report."""
        lines = [f"{count} {place.rsplit('/', 1)[-1]} {what} of "
                 f"{str(dtype).removeprefix('torch.')}{list(shape)}".encode()
                 for count, place, what, dtype, shape in list(self._called)]
        while sum(len(line) + 1 for line in lines) > 4 * _WORDS:
            lines.pop(0)
        return b'\n'.join(lines)

    def _compare(self, texts):
        said = [_parsed(text) for text in texts]
        for count in sorted(set().union(*said)):
            who = [i for i, of_rank in enumerate(said) if count in of_rank]
            if len({said[i][count][0] for i in who}) > 1:
                self._wait_for_others()
                told = disagreement([said[i][count][1] for i in who],
                                    [self._ranks[i] for i in who])
                raise mismatch(f"{told} as collective {count} of process group '{self._name}'. "
                               f'{RULE}')

    def _wait_for_others(self):
        """Waits until the other ranks have found the mismatch: each of them then sends one more
        text."""
        with contextlib.suppress(GradpoolError):
            self._notices.leave(b'')
            self._notices.find(_FOUND_MS)

    def end(self):
        self._notices.end()


def _parsed(text):
    """Returns {number: (place, dtype and shape)}."""
    lines = (line.split(' ', 2) for line in text.split('\n'))
    return {int(line[0]): line[1:] for line in lines if len(line) == 3 and line[0].isdecimal()}


class Collective(Operation):
    """An operation of all ranks of a group that has an `order`."""

    def _wait_for(self, part, until_s):
        """Checks the order during a long wait. A Ctrl-C is raised between two checks."""
        patient_s = time.monotonic() + _PATIENCE_S
        while part.request and not self._over.is_set():
            now_s = time.monotonic()
            if until_s - now_s <= _LOOK_S or part.request.done(int(_LOOK_S * 1e3)):
                break
            if now_s > patient_s:
                self._group.order.look()
        if not self._over.is_set():
            super()._wait_for(part, until_s)

    def is_over(self):
        """Checks the order also in the completion thread, for operations that this thread ends."""
        if self._waited_s() > _PATIENCE_S and not self._over.is_set():
            try:
                self._group.order.look()
            except Exception as error:
                self.end(error)
        return super().is_over()

    def _waited_s(self):
        return self._group.timeout_s - self._left_s()


class Shared(Collective):
    """A collective for which torch's own code waits once for each of its results."""

    def end(self, error):
        super().end(error)
        halves.tie(self)


class Barrier(Collective):
    """A barrier that also waits for `earlier`: operations that were open at the call."""
    earlier = ()

    def wait(self, timeout=datetime.timedelta(0)):
        super().wait(timeout)
        for one in self.earlier:
            # Only collectives are awaited, because every rank has called them before the barrier. A
            # message may still be received later.
            if isinstance(one, Collective) and not is_here():
                one.pass_by(timeout)
        self.earlier = ()
        return True
