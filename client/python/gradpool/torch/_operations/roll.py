"""Lists of open operations, for the text of a Timeout. After half of its deadline a waiting rank
sends its list repeatedly, without blocking. If all ranks of a set have sent lists, the ranks wait
for each other, and the error of each rank names the operations of all ranks."""
import contextlib
import time

from ..._group.notices import Notices
from ...errors import GradpoolError

_WORDS = 128


class Roll:
    """Lists of open operations of all ranks. `ranks`: the Sequences of a set."""

    def __init__(self, ranks):
        self._ranks = ranks
        self._notices = Notices(ranks.job, f'{ranks.path}/(open)', ranks.members, ranks.count,
                                _WORDS)
        self._known = {}        # position -> (time of the list, its text)

    def declare(self):
        """Declares the tensors in advance, because the coordinator may be unreachable after a long
        wait."""
        self._notices.declare()

    def end(self):
        self._notices.end()

    def tell(self):
        """Sends this rank's list, if all ranks have sent a list since this rank sent its last
        list."""
        with contextlib.suppress(GradpoolError):
            self._harvest()
            if not self._notices.is_left():
                self._notices.leave(f'{time.time():.3f} {self._mine()}'.encode())

    def told(self, since_s):
        """Returns one text with the open operations of each rank: 'Open on rank 0: ...; Open on
        rank 1: ...'. Uses the lists that were sent since `since_s`, and this rank's present
        list."""
        with contextlib.suppress(GradpoolError):
            self._harvest()
        texts = {i: text for i, (when, text) in self._known.items() if when >= since_s}
        texts[self._ranks.position] = self._mine()
        return '; '.join(f'Open on rank {self._ranks.rank_of(i)}: {text}'
                         for i, text in sorted(texts.items()))

    def _mine(self):
        return ', '.join(operation.told() for sequence in self._ranks.all()
                         for operation in list(sequence.open))

    def _harvest(self):
        """Stores the lists of all ranks."""
        for i, text in enumerate(self._notices.find() or ()):
            when, _, what = text.partition(' ')
            self._known[i] = float(when), what
