"""Sends the state of the training from one rank to others, in rounds of a sum: the giver pushes
words of the state, all other ranks push zeros. If the giver is lost, the sum is 0 on every rank."""
import collections
import io

import torch

from ..errors import GradpoolError
from .settings import check_settings

WORDS = 1 << 16         # of 8 bytes: 512 KiB a round
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
        """Returns the state as bytes."""
        kept = io.BytesIO()
        states = {name: one.state_dict() for name, one in self._objects.items()}
        torch.save((tuple(last), self._settings, states), kept)
        return kept.getvalue()

    def load(self, data, job, giver):
        """Returns the Last of rank `giver`. Raises Mismatch before any change if the settings
        differ."""
        # the bytes come from a worker of this job, which runs the same script
        last, settings, states = torch.load(io.BytesIO(data), weights_only=False)
        check_settings(job, self._settings, settings, giver)
        for name, one in self._objects.items():
            one.load_state_dict(states[name])
        return Last(*last)


def exchange(job, tensor, given, timeout_ms):
    """Makes the rounds of a hand-over, on every rank. Returns the bytes of the giver; None: the
    giver was lost.

      given  the bytes, on the giver; None on all other ranks"""
    sent, heard = torch.zeros(WORDS, dtype=torch.int64), torch.empty(WORDS, dtype=torch.int64)
    words = None if given is None else _words_of(given)
    parts, total = [], None
    while total is None or len(parts) * (WORDS - _HEAD) * 8 < total:
        if words is not None:
            _fill(sent, words, len(parts), len(given))
        job.push_pull(tensor, sent, heard, operation='sum').wait(timeout_ms)
        if heard[0].item() != _MAGIC:
            return None
        total = heard[1].item()
        parts.append(heard[_HEAD:].clone())
    return torch.cat(parts).numpy().tobytes()[:total]


def _words_of(data):
    padded = data + bytes(-len(data) % 8)
    return torch.frombuffer(bytearray(padded), dtype=torch.int64) if padded else None


def _fill(sent, words, part, size):
    some = words[part * (WORDS - _HEAD):][:WORDS - _HEAD]
    sent.zero_()
    sent[0], sent[1] = _MAGIC, size
    sent[_HEAD:_HEAD + len(some)] = some


def check_objects(objects):
    """Raises GradpoolError for an object without a state."""
    for name, one in objects.items():
        if not callable(getattr(one, 'state_dict', None)) or not callable(
                getattr(one, 'load_state_dict', None)):
            raise GradpoolError(22, f"Run: '{name}' is a {type(one).__name__} without state_dict() "
                                'and load_state_dict(), so a late worker cannot get its state; '
                                'leave the object out, or give it both methods')
