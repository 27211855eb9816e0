"""Calls: each class here prepares one kind of operation for NamedOperation.

A call has a description, which must be the same on every rank, and the tensors of the operation.
Its code moves results to their destination."""
import enum
import functools
import itertools
import math

import torch

from ..._tensors.carriers import (carrier_of, check_place, check_tensor, flat_of, is_half, mean_of,
                                  scaled, told, unload, widened)
from ..._tensors.cuda import crossing_of, fetched
from ..._tensors.lengths import Push
from ...errors import mismatch


class ReduceOp(enum.Enum):
    """A reduction of the ranks' values. The value is the service's name of the reduction."""
    Average = 'mean'
    Sum = 'sum'
    Min = 'min'
    Max = 'max'
    Product = 'product'
    Adasum = None


def check_reduction(op, tensor):
    """Raises Mismatch if the reduction is unknown, or is not defined for the tensor's dtype."""
    if not isinstance(op, ReduceOp):
        raise mismatch(f'op is {op!r}, expected Average, Sum, Min, Max or Product')
    if op is ReduceOp.Adasum:
        raise mismatch('Adasum is not offered; there are Average, Sum, Min, Max and Product')
    if tensor.is_complex() and op not in (ReduceOp.Average, ReduceOp.Sum):
        raise mismatch(f'{tensor.dtype} has no {op.name}')


def _has_mean(tensor):
    return tensor.is_floating_point() or tensor.is_complex()


def _neutral_value(op, dtype):
    if op in (ReduceOp.Average, ReduceOp.Sum):
        return 0
    if op is ReduceOp.Product:
        return 1
    if dtype is torch.bool:
        return op is ReduceOp.Min
    if not dtype.is_floating_point:
        limits = torch.iinfo(dtype)
        return limits.max if op is ReduceOp.Min else limits.min
    return float('inf') if op is ReduceOp.Min else float('-inf')


def factors_for(dtype, op, factors):
    """Returns the (before, after) factors for a dtype. 16-bit floats are summed as float32, where
    gradient_predivide_factor has no advantage, so two factors that cancel each other become 1."""
    is_sum = op in (ReduceOp.Average, ReduceOp.Sum)
    if is_sum and is_half(dtype) and math.isclose(factors[0] * factors[1], 1, rel_tol=1e-12):
        return 1.0, 1.0
    return factors


def told_factors(factors):
    """Returns a description of (before, after) for texts that ranks compare."""
    return '' if factors == (1.0, 1.0) else f', times {factors[0]:.17g} and {factors[1]:.17g}'


class _Whole:
    """A call that may push each tensor as a whole."""
    recipe = None

    def parts(self, plan):
        return [(slot, push.begin) for slot, push in zip(plan.slots, self.pushes(plan))]


class Reduction(_Whole):
    """Reduces tensors of all ranks element by element."""
    kind, room = 'allreduce', None

    def __init__(self, ranks, tensors, outputs, op, factors):
        self._ranks, self._op, self._factors = ranks, op, factors
        self._outputs = list(outputs)
        for tensor in tensors:
            check_reduction(op, tensor)
        shapes = ', '.join(map(told, tensors))
        self.text = f'allreduce ({op.name}) of {shapes}{told_factors(factors)}'
        self._cross([self._carriers(*pair) for pair in zip(tensors, outputs)])
        models = [(tensor.shape, tensor.dtype) for tensor in tensors]
        self.recipe = functools.partial(_without_part, models=models, op=op, factors=factors)
        self.neutral = functools.partial(self.recipe, ranks)

    def _carriers(self, tensor, output):
        """Returns (gradient, result) in the form for sending. 16-bit floats with a factor are sent
        as float32, so that they are rounded once, after all arithmetic."""
        given = carrier_of(tensor, False)
        before, after = factors_for(tensor.dtype, self._op, self._factors)
        if is_half(tensor.dtype) and (before, after) != (1, 1):
            given = widened(given)
            return self._scaled(given, before), torch.empty_like(given)
        result = given if output is tensor else carrier_of(output, False)
        return self._scaled(given, before), result

    def _cross(self, carriers):
        """Starts the copy of gradients on a GPU to the host."""
        self._results = [result for _, result in carriers]
        self.crossing = crossing_of(self._ranks.job, *itertools.chain(*carriers))
        self._places = [(self.crossing.out(given), self.crossing.back(result))
                        for given, result in carriers]

    def _scaled(self, given, before):
        return scaled(given, before)

    def sizes(self, _):
        return [(result.dtype, result.numel()) for result in self._results]

    def pushes(self, _):
        return [self._push(output, *places)
                for output, places in zip(self._outputs, self._places)]

    def _push(self, output, given, result):
        is_sum = self._op is ReduceOp.Average and not _has_mean(output)
        name = 'sum' if is_sum else self._op.value
        return Push(lambda of, given, result: self._ranks.job.push_pull(of, given, result, name),
                    given, result, crossing=self.crossing)

    def finish(self, _):
        for output, result in zip(self._outputs, self._results):
            _, after = factors_for(output.dtype, self._op, self._factors)
            if self._op is ReduceOp.Average and not _has_mean(output):
                result.copy_(mean_of(result, self._ranks.count, after))
            elif after != 1:
                result.copy_(scaled(result, after))
            unload(result, output, False)


def _without_part(ranks, models, op, factors):
    """Returns the call of a rank in join(). The call exists for a long time, so it refers to no
    tensors."""
    tensors = [torch.full(shape, _neutral_value(op, dtype), dtype=dtype)
               for shape, dtype in models]
    return _NoPart(ranks, tensors, tensors, op, factors)


class _NoPart(Reduction):
    """Reduction of a rank in join(), with neutral values: 0 for a sum, 1 for a product."""

    def _scaled(self, given, _):
        return given


class Scattering(_Whole):
    """Reduces tensors of all ranks. Each rank gets some rows of each result."""
    kind, room, neutral = 'reducescatter', None, None

    def __init__(self, ranks, tensors, op, factors):
        self._deals = [_Deal(ranks, tensor, op, factors) for tensor in tensors]
        self.crossing = crossing_of(ranks.job, *[deal.given for deal in self._deals])
        for deal in self._deals:
            deal.cross(self.crossing)
        self.text = f"reducescatter ({op.name}) of {', '.join(map(told, tensors))}" \
            + told_factors(factors)
        self.outputs = [deal.output for deal in self._deals]

    def sizes(self, _):
        return [deal.size() for deal in self._deals]

    def pushes(self, _):
        return [deal.push() for deal in self._deals]

    def finish(self, _):
        for deal in self._deals:
            deal.finish()


class _Deal:
    """Splits the rows of one tensor among the ranks. The first ranks get one row more if the rows
    do not divide evenly."""

    def __init__(self, ranks, tensor, op, factors):
        check_tensor(tensor)
        check_reduction(op, tensor)
        if tensor.dim() == 0:
            raise mismatch('reducescatter of a tensor without dimensions: it has no rows to split')
        self._ranks, self._op = ranks, op
        self._factors = factors_for(tensor.dtype, op, factors)
        count, extra = divmod(tensor.shape[0], ranks.count)
        self._rows = [count + (i < extra) for i in range(ranks.count)]
        self.given = self._padded(tensor)
        self.output = tensor.new_empty((self._rows[ranks.position], *tensor.shape[1:]))
        self._result = self.given if not self._is_sum() else \
            self.given.new_empty(self.given.numel() // ranks.count)

    def _padded(self, tensor):
        """Returns all blocks in one tensor, padded to the same length."""
        blocks = [carrier_of(block, False) for block in tensor.detach().split(self._rows)]
        if self._op is ReduceOp.Average or self._factors != (1.0, 1.0):
            blocks = [widened(block) for block in blocks]
        longest = blocks[0].numel()
        given = blocks[0].new_zeros(self._ranks.count, longest)
        for row, block in zip(given, blocks):
            row[:block.numel()] = block
        return scaled(given, self._factors[0]).view(-1)

    def _is_sum(self):
        return self._op in (ReduceOp.Average, ReduceOp.Sum)

    def cross(self, crossing):
        """Starts the copy of a tensor on a GPU to the host."""
        self._crossing = crossing
        self._places = crossing.out(self.given), crossing.back(self._result)

    def size(self):
        return self._result.dtype, self._result.numel()

    def push(self):
        operation = 'reduce-scatter' if self._is_sum() else self._op.value
        blocks = (self._ranks.count, 1) if self._is_sum() else (1, 1)
        return Push(lambda of, given, result: self._ranks.job.push_pull(
            of, given, result, operation), *self._places, blocks, self._crossing)

    def finish(self):
        block = self._result if self._is_sum() else \
            self._result.view(self._ranks.count, -1)[self._ranks.position]
        block = mean_of(block, self._ranks.count, self._factors[1]) \
            if self._op is ReduceOp.Average else scaled(block, self._factors[1])
        mine = carrier_of(self.output, False)
        unload(mine.copy_(block[:mine.numel()]), self.output, False)


class Broadcast(_Whole):
    """Copies the root's values to every rank."""
    kind, room, neutral = 'broadcast', None, None

    def __init__(self, ranks, output, root):
        check_place(output)
        if not any(ranks.rank_of(i) == root for i in range(ranks.count)):
            raise mismatch(f'broadcast from rank {root}, which is not one of the '
                           f'{ranks.count} ranks')
        self.text = f'broadcast from rank {root} of {told(output)}'
        self._ranks, self._root, self._output = ranks, root, output
        self._values = carrier_of(output, True)
        self.crossing = crossing_of(ranks.job, self._values)
        is_root = ranks.job.rank == root
        place = (self.crossing.out if is_root else self.crossing.back)(self._values)
        self._places = (place, None) if is_root else (None, place)

    def sizes(self, _):
        return [(self._values.dtype, self._values.numel())]

    def pushes(self, _):
        return [Push(lambda of, given, result: self._ranks.job.broadcast(
            of, result if given is None else given, self._root), *self._places,
            crossing=self.crossing)]

    def finish(self, _):
        unload(self._values, self._output, True)


def _bytes_of(tensor):
    flat = flat_of(tensor.detach().resolve_conj().resolve_neg())
    return (torch.view_as_real(flat) if flat.is_complex() else flat).view(-1).view(torch.uint8)


def _of_bytes(raw, dtype, shape):
    if dtype.is_complex:
        real = torch.float32 if dtype is torch.complex64 else torch.float64
        return torch.view_as_complex(raw.clone().view(real).view(*shape, 2))
    return raw.clone().view(dtype).view(shape)


def _joined(parts):
    return parts[0] if len(parts) == 1 else torch.cat(parts)


class _Boxes(_Whole):
    """Gathers rows of all ranks. Only a rank itself knows the number of its rows. Rows are sent in
    boxes: messages with room for the largest number of rows of any rank so far. The head of a box
    has the room that its rank needs, and the number of rows of each tensor. If one rank needs more
    room, all ranks repeat the operation with larger boxes.

      boxes   rows of each tensor, for each box that this rank sends: one for all, or one a rank
      models  the tensors, without rows
      found   result on the host: the rows of each tensor of each rank"""

    def __init__(self, ranks, boxes, models):
        self._ranks, self._models = ranks, models
        self._rows = [[len(block) for block in blocks] for blocks in boxes]
        raw = [_joined([_bytes_of(block) for block in blocks]) for blocks in boxes]
        self.crossing = crossing_of(ranks.job, *raw)
        self._raw = [self.crossing.out(one) for one in raw]
        self.room = max(one.numel() for one in raw)
        self._head = 2 * (1 + len(models))      # length of the head, in 64-bit numbers
        self.found = self._whole = None

    def sizes(self, room):
        return [(torch.int32, self._head - -room // 4)]

    def pushes(self, plan):
        boxes = self.crossing.after(functools.partial(self._boxes, plan.room))
        (_, words), = self.sizes(plan.room)
        self._whole = torch.empty(self._ranks.count * words, dtype=torch.int32)
        blocks = len(self._rows), self._ranks.count
        return [Push(lambda of, given, result: self._ranks.job.push_pull(
            of, given, result, self._operation), boxes, self._whole, blocks, self.crossing)]

    def _boxes(self, room):
        return torch.cat([self._box(room, *one) for one in zip(self._rows, self._raw)])

    def _box(self, room, rows, raw):
        (_, words), = self.sizes(room)
        box = torch.zeros(words, dtype=torch.int32)
        box[:self._head].view(torch.int64).copy_(torch.tensor([self.room, *rows]))
        if self.room <= room:
            box.view(torch.uint8)[4 * self._head:][:raw.numel()] = raw
        return box

    def finish(self, plan):
        boxes = self._whole.view(self._ranks.count, -1)
        heads = torch.cat([box[:self._head] for box in boxes]).view(torch.int64)
        heads = heads.view(self._ranks.count, -1).tolist()
        most = max(needed for needed, *_ in heads)
        if most > plan.room:
            plan.room = max(most, plan.room + plan.room // 4)
            return True
        self.found = [self._blocks_of(box, rows) for box, (_, *rows) in zip(boxes, heads)]
        return False

    def _placed(self, blocks, model):
        """Returns the rows one after the other, on the device of their tensor."""
        return fetched(self._ranks.job, torch.cat(blocks), model)

    def _blocks_of(self, box, rows):
        """Returns the rows in a box of another rank."""
        raw, blocks = box[self._head:].contiguous().view(torch.uint8), []
        for model, count in zip(self._models, rows):
            shape = (count, *model.shape[1:])
            size = torch.Size(shape).numel() * model.element_size()
            blocks.append(_of_bytes(raw[:size], model.dtype, shape))
            raw = raw[size:]
        return blocks


def _any_rows(tensor):
    return told(tensor, ['*', *tensor.shape[1:]])


class Gathering(_Boxes):
    """Copies all ranks' rows of some tensors to every rank."""
    kind, _operation = 'allgather', 'gather'

    def __init__(self, ranks, tensors):
        for tensor in tensors:
            check_tensor(tensor)
        if any(tensor.dim() == 0 for tensor in tensors):
            raise mismatch('allgather of a tensor without dimensions; call view(1) first')
        super().__init__(ranks, [tensors], tensors)
        self.text = f"allgather of {', '.join(map(_any_rows, tensors))}"
        models = [((0, *tensor.shape[1:]), tensor.dtype) for tensor in tensors]
        self.recipe = functools.partial(_without_rows, models=models)
        self.neutral = functools.partial(self.recipe, ranks)

    def whole(self):
        """Returns for each tensor the rows of all ranks, in rank order."""
        return list(map(self._placed, zip(*self.found), self._models))


def _without_rows(ranks, models):
    return Gathering(ranks, [torch.empty(shape, dtype=dtype) for shape, dtype in models])


class Exchange(_Boxes):
    """Sends rows from each rank to each rank. `splits[i]`: number of this rank's rows for rank
    i."""
    kind, _operation, neutral = 'alltoall', 'all-to-all', None

    def __init__(self, ranks, tensor, splits):
        splits = checked_splits(ranks, tensor, splits)
        super().__init__(ranks, [[rows] for rows in tensor.detach().split(splits)], [tensor])
        self.text = f'alltoall of {_any_rows(tensor)}'

    def rows(self):
        """Returns (rows from all ranks, number of rows from each rank)."""
        blocks = [rows for rows, in self.found]
        return self._placed(blocks, *self._models), [len(rows) for rows in blocks]


def checked_splits(ranks, tensor, splits):
    """Returns the number of this rank's rows for each rank. Raises Mismatch if `splits` does not
    fit the tensor."""
    check_tensor(tensor)
    rows = tensor.shape[0] if tensor.dim() else 0
    if splits is None:
        if tensor.dim() == 0 or rows % ranks.count:
            raise mismatch(f'alltoall of {told(tensor)} among {ranks.count} ranks: its rows '
                           'cannot be dealt evenly; give splits')
        return [rows // ranks.count] * ranks.count
    splits = [int(count) for count in splits]
    if len(splits) != ranks.count or sum(splits) != rows or min(splits) < 0:
        raise mismatch(f'alltoall of {told(tensor)}: splits {splits}, expected {ranks.count} '
                       f'numbers whose sum is {rows}')
    return splits
