"""Gradients of an optimizer that are sent with a codec (gradpool.codecs). The codec encodes the
gradients that it accepts, and every rank decodes the codes. Other gradients of the same group are
sent unchanged."""
import functools

import numpy
import torch

from ..._tensors.carriers import carrier_of, told, unload
from ..._tensors.cuda import crossing_of
from ...errors import mismatch
from .._operations.calls import ReduceOp


class CodedReduction:
    """The mean or sum of tensors, {name: tensor}, over all ranks.

    feedback  residuals and numbers of rounds
    is_sent   False: the ranks only agree on the operation, and nothing is encoded"""
    kind, room, recipe = 'allreduce', None, None

    def __init__(self, ranks, feedback, tensors, op, is_sent=True):
        if op not in (ReduceOp.Average, ReduceOp.Sum):
            raise mismatch(f'{op} of compressed gradients: expected Average or Sum')
        self._ranks, self._feedback, self._op = ranks, feedback, op
        self._tensors, codec = tensors, feedback.codec
        shapes = ', '.join(map(told, tensors.values()))
        self.text = f'allreduce ({op.name}) of {shapes} as {codec!r}'
        self._carriers = {name: carrier_of(tensor, False) for name, tensor in tensors.items()}
        self._codes = {name: None for name, flat in self._carriers.items()
                       if flat.dtype is torch.float32 and codec.takes(flat.numel())}
        self._found = {}
        self.crossing = crossing_of(ranks.job, *self._carriers.values())
        self._places = {name: self.crossing.out(flat) for name, flat in self._carriers.items()}
        if is_sent:
            self._codes = {name: self.crossing.after(functools.partial(
                feedback.encode, name, self._places[name])) for name in self._codes}
        models = {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}
        # A rank in join() counts no rounds, so its random numbers would differ.
        self.neutral = None if codec.operation == 'mean' else \
            functools.partial(_NoPart, ranks, feedback, models, op)

    def sizes(self, _):
        codec = self._feedback.codec
        return [(getattr(torch, codec.dtype), codec.words(flat.numel())) if name in self._codes
                else (flat.dtype, flat.numel()) for name, flat in self._carriers.items()]

    def parts(self, plan):
        return [(slot, self._begin_of(name)) for slot, name in zip(plan.slots, self._carriers)]

    def _begin_of(self, name):
        push = self._push_code if name in self._codes else self._push
        return lambda of: self.crossing.begin(lambda: push(of, name))

    def _push(self, of, name):
        return self._ranks.job.push_pull(of, self._places[name], None, self._op.value)

    def _push_code(self, of, name):
        code, operation = self._codes[name](), self._feedback.codec.operation
        blocks = self._ranks.count if operation == 'gather' else 1
        self._found[name] = numpy.empty(blocks * code.size, code.dtype)
        return self._ranks.job.push_pull(of, code, self._found[name], operation)

    def finish(self, _):
        for name, flat in self._carriers.items():
            place = self._places[name]
            if name in self._codes:
                self._feedback.decode(name, self._found[name], place, self._ranks.count)
                if self._op is ReduceOp.Sum:
                    place *= self._ranks.count
            self.crossing.bring([(flat, place)])
            unload(flat, self._tensors[name], False)


class _NoPart(CodedReduction):
    """The part of a rank in join(): codes that decode to zeros. Its residuals do not change."""

    def __init__(self, ranks, feedback, models, op):
        zeros = {name: torch.zeros(shape, dtype=dtype) for name, (shape, dtype) in models.items()}
        super().__init__(ranks, feedback, zeros, op, is_sent=False)
        self._codes = {name: functools.partial(numpy.zeros, feedback.codec.words(
            zeros[name].numel()), numpy.int32) for name in self._codes}

    def finish(self, _):
        """Does nothing, because a rank in join() needs no result."""
