"""Sends the state of the training from one rank, the giver, to others. In each round of sums the
giver pushes words of the state, and all other ranks push zeros. If the giver is lost, the sum is 0
on every rank.

All workers wait for the hand-over, so one buffer serves all rounds: the first access to a page of
new memory takes up to 17 us on some hosts."""
import collections
import io

import torch

from ..errors import GradpoolError
from .settings import check_settings

WORDS = 1 << 16  # number of 8-byte words in a round: 512 KiB
NAME = 'elastic/state'
_MAGIC = 0x45544154535047       # first word of each round
_HEAD = 2               # words: _MAGIC, and the number of bytes of the state


# The last step of the giver: its epoch, and the number of its workers; None before the first one.
Last = collections.namedtuple('Last', ('epoch', 'workers'))


class State:
    """Objects with state_dict() and load_state_dict(), by name, and the settings of this worker at
    the beginning of its script."""

    def __init__(self, objects, settings):
        self._objects, self._settings = objects, settings

    def save(self, last):
        """Returns the state as a file."""
        kept = io.BytesIO()
        states = {name: one.state_dict() for name, one in self._objects.items()}
        torch.save((tuple(last), self._settings, states), kept)
        return kept

    def load(self, kept, job, giver):
        """Reads the state from a file. Returns the Last of rank `giver`; None: of the trial's
        checkpoint. Raises Mismatch before any change if the settings differ."""
        kept.seek(0)
        # the bytes come from a worker of this job, which runs the same script
        last, settings, states = torch.load(kept, weights_only=False)
        check_settings(job, self._settings, settings, giver)
        for name, one in self._objects.items():
            one.load_state_dict(states[name])
        return Last(*last)


def exchange(job, tensor, given, wants, timeout_ms):
    """Makes the rounds of a hand-over, on every rank. Returns a file with the bytes of the giver;
    None: the giver was lost.

      given  the file of the state, on the giver; None on all other ranks
      wants  False: this worker has the state, and the returned file stays empty"""
    words, kept, done, total = torch.empty(WORDS, dtype=torch.int64), io.BytesIO(), 0, None
    room = memoryview(words.numpy()).cast('B')[8 * _HEAD:]
    while total is None or done < total:
        words.zero_()
        if given is not None:
            words[0], words[1] = _MAGIC, len(given.getbuffer())
            some = given.getbuffer()[done:done + len(room)]
            room[:len(some)] = some
        job.push_pull(tensor, words, operation='sum').wait(timeout_ms)
        if words[0].item() != _MAGIC:
            return None
        total = words[1].item()
        if wants:
            kept.write(room[:total - done])
        done += len(room)
    return kept


def check_objects(objects):
    """Raises GradpoolError for an object without a state."""
    for name, one in objects.items():
        if not callable(getattr(one, 'state_dict', None)) or not callable(
                getattr(one, 'load_state_dict', None)):
            raise GradpoolError(22, f"Run: '{name}' is a {type(one).__name__} without state_dict() "
                                'and load_state_dict(), so a late worker cannot get its state; '
                                'leave the object out, or give it both methods')
