"""Texts between waiting ranks and ranks in join(), sent without blocking.

A rank in join() continues with the operations that it knows. Each rank in join() sends a text. A
rank that waits in an operation sends a description of the operation:

    rank 0   join()                           1st join   ---+--> rank 0 begins 'x' with zeros
    rank 1   allreduce 'x', waits 0.2 s ...   'x' ...    ---+--> rank 1 waits on, or raises

When all ranks of a set have sent a text, each rank of the set has the list of ranks in join(). The
ranks in join() then start each described operation that needs no values from them. All other
operations raise an error with the numbers of these ranks."""
import base64
import contextlib
import errno
import pickle
import threading
import time
import zlib

from ..._group.notices import Notices
from ...errors import GradpoolError

_WORDS = 512
# Time for which an operation waits before it checks for ranks in join(). If a rank is known to be
# in join(), the check is made at once.
_PATIENCE_S = 0.2
_LOOK_S = 0.02      # interval of checks


class Joined:
    """Texts of ranks in join() and of waiting ranks. `ranks`: the Sequences of a set."""

    def __init__(self, ranks):
        self._ranks = ranks
        self._notices = Notices(ranks.job, f'{ranks.path}/(joined)', ranks.members, ranks.count,
                                _WORDS)
        self._lock, self._next_s, self._patience_s = threading.Lock(), 0.0, _PATIENCE_S

    def declare(self):
        """Declares the tensors in advance, because the coordinator may be away later."""
        self._notices.declare()

    def find(self, call, waited_s):
        """Returns the ranks in join(), for an operation that has waited for `waited_s`. The list is
        empty as long as some rank has not sent a text. It is also empty if ranks in join() can
        begin `call`; they cannot if `call` is None, or too long for a text. Ignores errors, because
        the operation itself raises them with more details."""
        if waited_s < self._patience_s or time.monotonic() < self._next_s \
                or not self._lock.acquire(blocking=False):
            return []
        try:
            self._next_s = time.monotonic() + _LOOK_S
            return self._look(call)
        except GradpoolError:
            return []
        finally:
            self._lock.release()

    def _look(self, call):
        texts = self._notices.find() or ()
        raw = _packed(call)
        if len(raw) > 4 * _WORDS:
            raw, call = _packed(None), None
        self._leave(raw)
        current = str(self._ranks.door.joins + 1)
        found = [self._ranks.rank_of(i) for i, text in enumerate(texts) if text == current]
        if texts:
            self._patience_s = 0 if found else _PATIENCE_S
        return found if call is None else []

    def end(self):
        self._notices.end()

    def calls(self):
        """For a rank in join(): returns the operations in which other ranks wait."""
        texts = self._notices.find() or ()
        self._leave(str(self._ranks.door.joins + 1).encode())
        found = [pickle.loads(zlib.decompress(base64.b64decode(text))) for text in texts
                 if not text.isdecimal()]
        return [call for call in found if call is not None]

    def _leave(self, raw):
        if not self._notices.is_left():
            with contextlib.suppress(GradpoolError):
                self._notices.leave(raw)


def _packed(call):
    """Compresses the call. A group of many tensors has a long description with similar shapes."""
    return base64.b64encode(zlib.compress(pickle.dumps(call)))


def refusal(joined):
    """Returns the error of an operation that ranks in join() cannot begin."""
    told = ', '.join(map(str, joined))
    one = len(joined) == 1
    return GradpoolError(errno.EOPNOTSUPP, f"{'rank' if one else 'ranks'} {told} "
                         f"{'has' if one else 'have'} called join(). Until all ranks have "
                         'called join(), only allreduce, allgather and barrier of all ranks are '
                         'possible')
