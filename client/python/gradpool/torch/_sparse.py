"""Reductions of sparse tensors: everybody's indices and values for everybody, who adds them up."""
import torch

from .._carriers import told
from ..errors import mismatch
from ._calls import Gathering, ReduceOp

_BEGIN = 'sparse allreduce'
_HALVES = torch.float16, torch.bfloat16


class SparseReduction(Gathering):
    """A sparse tensor of all ranks. It bears the name that a dense one would, so that ranks that
    bring one of each are told.

    indices, values   its parts, a row each; `shape`: the whole tensor's"""
    kind = 'allreduce'

    def __init__(self, ranks, indices, values, shape, op, factors):
        if op not in (ReduceOp.Average, ReduceOp.Sum):
            raise mismatch(f'{op} of sparse tensors: expected Average or Sum')
        self._op, self._factors, self._shape = op, factors, shape
        super().__init__(ranks, [indices, _scaled(values, factors[0])])
        dims = indices.shape[1]
        self.text = f'{_BEGIN} ({op.name}) of {told(values, list(shape))}'
        if dims != 1:
            self.text += f', {dims} of its dimensions sparse'
        if factors != (1.0, 1.0):
            self.text += f', times {factors[0]:g} and {factors[1]:g}'
        nothing = [one.new_empty((0, *one.shape[1:]), device='cpu') for one in (indices, values)]
        self.neutral = lambda: SparseReduction(ranks, *nothing, shape, op, factors)

    def reduced(self, decompress):
        """The result; `decompress` makes values what they were."""
        indices, values = self.whole()
        dtype = values.dtype
        wide = values.float() if dtype in _HALVES else values
        found = torch.sparse_coo_tensor(indices.t(), wide, self._shape).coalesce()
        values = found.values()
        if self._op is ReduceOp.Average:
            is_whole = not (values.is_floating_point() or values.is_complex())
            values = values.div(self._ranks.count, rounding_mode='floor' if is_whole else None)
        values = decompress(_scaled(values.to(dtype), self._factors[1]))
        return torch.sparse_coo_tensor(found.indices(), values, self._shape)._coalesced_(True)


def _scaled(values, factor):
    return values if factor == 1 else (values * factor).to(values.dtype)


def is_sparse_to_some(texts):
    """Whether ranks that disagree have brought sparse tensors, and others have not."""
    return len({text.startswith(_BEGIN) for text in texts}) > 1
