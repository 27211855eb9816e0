"""Reductions of sparse tensors: every rank gets the indices and values of all ranks, and adds
them."""
import functools

import torch

from ..._tensors.carriers import mean_of, scaled, told, widened
from ...errors import mismatch
from .calls import factors_for, Gathering, ReduceOp, told_factors

_BEGIN = 'sparse allreduce'


class SparseReduction(Gathering):
    """Reduction of a sparse tensor over all ranks. The operation has the name of a dense reduction,
    so ranks get an error if some have a sparse tensor and others a dense tensor.

    indices, values  parts of the tensor, one row for each element; `shape`: shape of the whole
    tensor"""
    kind = 'allreduce'

    def __init__(self, ranks, indices, values, shape, op, factors):
        if op not in (ReduceOp.Average, ReduceOp.Sum):
            raise mismatch(f'{op} of sparse tensors: expected Average or Sum')
        self._op, self._shape, self._dtype = op, shape, values.dtype
        before, self._after = factors_for(values.dtype, op, factors)
        travels = values if before == self._after == 1 else scaled(widened(values), before)
        super().__init__(ranks, [indices, travels])
        dims = indices.shape[1]
        self.text = f'{_BEGIN} ({op.name}) of {told(values, list(shape))}'
        if dims != 1:
            self.text += f', {dims} of its dimensions sparse'
        self.text += told_factors(factors)
        models = [((0, *one.shape[1:]), one.dtype) for one in (indices, values)]
        self.recipe = functools.partial(_without_rows, models=models, shape=shape, op=op,
                                        factors=factors)
        self.neutral = functools.partial(self.recipe, ranks)

    def reduced(self, decompress):
        """Returns the result. `decompress` restores the dtype of the values."""
        indices, values = self.whole()
        found = torch.sparse_coo_tensor(indices.t(), widened(values), self._shape).coalesce()
        total = found.values()
        total = mean_of(total, self._ranks.count, self._after) \
            if self._op is ReduceOp.Average else scaled(total, self._after)
        values = decompress(total.to(self._dtype))
        return torch.sparse_coo_tensor(found.indices(), values, self._shape)._coalesced_(True)


def _without_rows(ranks, models, shape, op, factors):
    nothing = [torch.empty(rows, dtype=dtype) for rows, dtype in models]
    return SparseReduction(ranks, *nothing, shape, op, factors)


def is_sparse_to_some(texts):
    """Returns whether some of the ranks that disagree have sparse tensors and others dense ones."""
    return len({text.startswith(_BEGIN) for text in texts}) > 1
