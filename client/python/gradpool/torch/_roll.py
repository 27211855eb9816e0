"""What the ranks of a set have open, for the text of a Timeout: a rank that was waiting for half of
its deadline tells it, now and then, without waiting for anybody. If all of a set do, they are
waiting for each other, and each can say for what."""
import contextlib
import struct
import time

import torch

from ..errors import GradpoolError
from ._sequences import declare_all

_WORDS = 128
_HEAD = struct.Struct('<d')     # when it was told
_TEXT_BYTES = 4 * _WORDS - _HEAD.size


class Roll:
    """Of `ranks`, the Sequences of a set."""

    def __init__(self, ranks):
        self._ranks, self._tensor = ranks, None
        self._request = self._whole = None
        self._known = {}        # position -> (when it was told, what)

    def declare(self):
        """Beforehand: who waits for long may not reach the coordinator either."""
        if self._tensor is None:
            slot, = declare_all(self._ranks, {f'{self._ranks.path}/(open)': (torch.int32, _WORDS)})
            self._tensor = slot.tensor

    def tell(self):
        """What is open here; not before all have told something since the last time."""
        with contextlib.suppress(GradpoolError):
            if self._request is None or self._harvest():
                self._request = self._push()

    def told(self, since_s):
        """'Open on rank 0: ...; on rank 1: ...': what was told since then, and what is here."""
        with contextlib.suppress(GradpoolError):
            self._harvest()
        texts = {i: text for i, (when, text) in self._known.items() if when >= since_s}
        texts[self._ranks.position] = self._mine()
        return 'Open ' + '; '.join(f'on rank {self._ranks.rank_of(i)}: {text}'
                                   for i, text in sorted(texts.items()))

    def _push(self):
        words = torch.zeros(_WORDS, dtype=torch.int32)
        said = bytearray(_HEAD.pack(time.time()) + self._mine().encode()[:_TEXT_BYTES])
        words.view(torch.uint8)[:len(said)] = torch.frombuffer(said, dtype=torch.uint8)
        self._whole = torch.empty(self._ranks.count * _WORDS, dtype=torch.int32)
        return self._ranks.job.push_pull(self._tensor, words, self._whole, 'gather')

    def _mine(self):
        return ', '.join(operation.told() for sequence in self._ranks.all()
                         for operation in list(sequence.open))

    def _harvest(self):
        """Takes in what was told by all. False: not all have."""
        if self._request is None or not self._request.done():
            return False
        self._request.wait()
        for i, block in enumerate(self._whole.view(torch.uint8).view(self._ranks.count, -1)):
            raw = bytes(block.tolist())
            text = raw[_HEAD.size:].rstrip(b'\0').decode(errors='ignore')
            self._known[i] = _HEAD.unpack_from(raw)[0], text
        return True
