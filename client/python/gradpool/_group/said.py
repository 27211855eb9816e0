"""Ranks of a process group exchange descriptions of a collective whose values are sent in pieces.
Tensors of different lengths may consist partly of the same pieces, so the service would not detect
all differences."""
import torch

from ..errors import disagreement, mismatch
from .operations import Part, Slot
from .order import RULE

_WORDS = 16


class Said:
    """`name`, `ranks`: those of the group. `path`: prefix of the names of its tensors."""

    def __init__(self, job, name, path, ranks):
        self._job, self._name, self._path, self._ranks = job, name, path, ranks
        self._slot = None

    def beside(self, parts, what, tensor):
        """Returns the parts and the place of the collective. The first part sends the description
        of the call; a Pieces object becomes several parts."""
        told = f"{what} of {str(tensor.dtype).removeprefix('torch.')}[{tensor.numel()}]"
        every = [self._part(told)]
        for part in parts:
            every += part if isinstance(part, list) else [part]
        return every, told.replace(' ', '-')

    def _part(self, told):
        """Returns the part with the description. At the end of its round the part raises Mismatch
        if the descriptions differ."""
        if self._slot is None:
            made = self._job.declare(f'{self._path}/(said)', _WORDS, 'int32', ranks=self._ranks)
            self._slot = Slot(made, 4 * _WORDS)
        raw, words = bytearray(told.encode()[:4 * _WORDS]), torch.zeros(_WORDS, dtype=torch.int32)
        words.view(torch.uint8)[:len(raw)] = torch.frombuffer(raw, dtype=torch.uint8)
        whole = torch.empty(len(self._ranks), _WORDS, dtype=torch.int32)

        def land():
            if not torch.equal(whole, words.expand_as(whole)):
                texts = [bytes(block.tolist()).rstrip(b'\0').decode(errors='ignore')
                         for block in whole.view(torch.uint8)]
                raise mismatch(f'{disagreement(texts, self._ranks)} as a collective of process '
                               f"group '{self._name}'. {RULE}")
        return Part(self._slot, lambda of: self._job.push_pull(of, words, whole, 'gather'),
                    land=land)

    def end(self):
        if self._slot is not None:
            self._slot.end()
