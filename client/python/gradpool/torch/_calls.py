"""What the operations are made of: what must be the same on every rank, which tensors it takes, and
how the result comes to its place (NamedOperation's `call`)."""
import enum
import functools

import torch

from .._carriers import carrier_of, unload
from ..errors import mismatch

_BOX_HEAD = 4   # words: rows, and the most bytes that this rank has for one other, each 64 bits


class ReduceOp(enum.Enum):
    """What becomes of the ranks' values; the value is the service's name of it."""
    Average = 'mean'
    Sum = 'sum'
    Min = 'min'
    Max = 'max'
    Product = 'product'
    Adasum = None


def check_reduction(op, tensor):
    """Mismatch: it makes no sense for that tensor, or is not offered."""
    if not isinstance(op, ReduceOp):
        raise mismatch(f'op is {op!r}, expected Average, Sum, Min, Max or Product')
    if op is ReduceOp.Adasum:
        raise mismatch('Adasum is not offered; there are Average, Sum, Min, Max and Product')
    if tensor.is_complex() and op not in (ReduceOp.Average, ReduceOp.Sum):
        raise mismatch(f'{tensor.dtype} has no {op.name}')


def told(tensor, shape=None):
    """How texts that ranks compare say a tensor's dtype and shape."""
    shape = list(tensor.shape) if shape is None else shape
    return f"{str(tensor.dtype).removeprefix('torch.')}{shape}".replace("'", '')


def _has_mean(tensor):
    return tensor.is_floating_point() or tensor.is_complex()


def _neutral_value(op, dtype):
    if op in (ReduceOp.Average, ReduceOp.Sum):
        return 0
    if op is ReduceOp.Product:
        return 1
    if not dtype.is_floating_point:
        limits = torch.iinfo(dtype)
        return limits.max if op is ReduceOp.Min else limits.min
    return float('inf') if op is ReduceOp.Min else float('-inf')


class Reduction:
    """Tensors of all ranks, reduced element by element."""
    kind, room = 'allreduce', None

    def __init__(self, ranks, tensors, outputs, op, factors):
        self._ranks, self._op, self._factors = ranks, op, factors
        self._outputs = list(outputs)
        scaled = '' if factors == (1.0, 1.0) else f', times {factors[0]:g} and {factors[1]:g}'
        shapes = ', '.join(map(told, tensors))
        self.text = f'allreduce ({op.name}) of {shapes}{scaled}'
        for tensor in tensors:
            check_reduction(op, tensor)
        self._moves = [self._move(tensor, output) for tensor, output in zip(tensors, outputs)]
        models = [(tensor.shape, tensor.dtype) for tensor in tensors]
        self.neutral = functools.partial(_without_part, ranks, models, op, factors)

    def _move(self, tensor, output):
        """(gradient, result) as they travel."""
        given = carrier_of(tensor, False)
        result = given if output is tensor else carrier_of(output, False)
        if self._factors[0] != 1:
            given = (given * self._factors[0]).to(given.dtype)
        return given, result

    def sizes(self, _):
        return [(given.dtype, given.numel()) for given, _ in self._moves]

    def parts(self, plan):
        return [(slot, self._push(output, *move))
                for slot, output, move in zip(plan.slots, self._outputs, self._moves)]

    def _push(self, output, given, result):
        is_sum = self._op is ReduceOp.Average and not _has_mean(output)
        name = 'sum' if is_sum else self._op.value
        return lambda of: self._ranks.job.push_pull(of, given, result, name)

    def finish(self, _):
        for output, (_, result) in zip(self._outputs, self._moves):
            if self._op is ReduceOp.Average and not _has_mean(output):
                result.div_(self._ranks.count, rounding_mode='floor')
            if self._factors[1] != 1:
                result.copy_(result * self._factors[1])
            unload(result, output, False)


def _without_part(ranks, models, op, factors):
    """The Reduction of a rank that has joined. It is kept for long, and so keeps no tensors."""
    tensors = [torch.full(shape, _neutral_value(op, dtype), dtype=dtype)
               for shape, dtype in models]
    return Reduction(ranks, tensors, tensors, op, factors)


class Scattering:
    """Tensors of all ranks, reduced; each gets the rows that are its own. Where they cannot be
    dealt evenly the first ranks get one more."""
    kind, room, neutral = 'reducescatter', None, None

    def __init__(self, ranks, tensor, op, factors):
        check_reduction(op, tensor)
        if tensor.dim() == 0:
            raise mismatch('reducescatter of a tensor without dimensions: it has no rows to deal')
        self._ranks, self._op, self._factors = ranks, op, factors
        self.text = f'reducescatter ({op.name}) of {told(tensor)}'
        if factors != (1.0, 1.0):
            self.text += f', times {factors[0]:g} and {factors[1]:g}'
        count, extra = divmod(tensor.shape[0], ranks.count)
        self.rows = [count + (i < extra) for i in range(ranks.count)]
        self._given = self._padded(tensor)
        mine = self.rows[ranks.position]
        self.output = tensor.new_empty((mine, *tensor.shape[1:]))
        self._block = self._given.new_empty(self._given.numel() // ranks.count)

    def _padded(self, tensor):
        """Blocks of the same length, one after the other."""
        blocks = [carrier_of(block, False) for block in tensor.detach().split(self.rows)]
        longest = blocks[0].numel()
        given = blocks[0].new_zeros(self._ranks.count, longest)
        for row, block in zip(given, blocks):
            row[:block.numel()] = block
        if self._factors[0] != 1:
            given = (given * self._factors[0]).to(given.dtype)
        return given.view(-1)

    def _is_sum(self):
        return self._op in (ReduceOp.Average, ReduceOp.Sum)

    def sizes(self, _):
        return [(self._given.dtype, (self._block if self._is_sum() else self._given).numel())]

    def parts(self, plan):
        operation = 'reduce-scatter' if self._is_sum() else self._op.value
        result = self._block if self._is_sum() else self._given
        return [(plan.slots[0], lambda of: self._ranks.job.push_pull(of, self._given, result,
                                                                     operation))]

    def finish(self, _):
        block = self._block if self._is_sum() else \
            self._given.view(self._ranks.count, -1)[self._ranks.position]
        if self._op is ReduceOp.Average:
            block.div_(self._ranks.count, **({} if _has_mean(self.output) else
                                             {'rounding_mode': 'floor'}))
        if self._factors[1] != 1:
            block.copy_(block * self._factors[1])
        mine = carrier_of(self.output, False)
        unload(mine.copy_(block[:mine.numel()]), self.output, False)


class Broadcast:
    """The root's values for everybody."""
    kind, room, neutral = 'broadcast', None, None

    def __init__(self, ranks, output, root):
        if not any(ranks.rank_of(i) == root for i in range(ranks.count)):
            raise mismatch(f'broadcast from rank {root}, which is not one of the '
                           f'{ranks.count} ranks')
        self.text = f'broadcast from rank {root} of {told(output)}'
        self._ranks, self._root, self._output = ranks, root, output
        self._values = carrier_of(output, True)

    def sizes(self, _):
        return [(self._values.dtype, self._values.numel())]

    def parts(self, plan):
        return [(plan.slots[0], lambda of: self._ranks.job.broadcast(of, self._values, self._root))]

    def finish(self, _):
        unload(self._values, self._output, True)


def _bytes_of(tensor):
    flat = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    return (torch.view_as_real(flat) if flat.is_complex() else flat).view(-1).view(torch.uint8)


def _of_bytes(raw, dtype, shape):
    if dtype.is_complex:
        real = torch.float32 if dtype is torch.complex64 else torch.float64
        return torch.view_as_complex(raw.clone().view(real).view(*shape, 2))
    return raw.clone().view(dtype).view(shape)


class _Boxes:
    """Rows whose number only their owner knows: they travel in boxes that have room for the most of
    any rank so far, each with the number of its rows. Who has more says so in the same way, and
    all begin anew with larger ones."""

    def __init__(self, ranks, blocks, model):
        self._ranks, self._model = ranks, model
        self._rows = [block.shape[0] for block in blocks]
        self._raw = [_bytes_of(block) for block in blocks]
        self.room = max(raw.numel() for raw in self._raw)
        self.blocks = self._whole = None

    def sizes(self, room):
        return [(torch.int32, _BOX_HEAD - -room // 4)]

    def parts(self, plan):
        boxes = torch.cat([self._box(plan.room, rows, raw)
                           for rows, raw in zip(self._rows, self._raw)])
        (_, words), = self.sizes(plan.room)
        self._whole = torch.empty(self._ranks.count * words, dtype=torch.int32)
        return [(plan.slots[0], lambda of: self._ranks.job.push_pull(of, boxes, self._whole,
                                                                     self._operation))]

    def _box(self, room, rows, raw):
        (_, words), = self.sizes(room)
        box = torch.zeros(words, dtype=torch.int32)
        box[:_BOX_HEAD].view(torch.int64).copy_(torch.tensor([rows, self.room]))
        if self.room <= room:
            box.view(torch.uint8)[4 * _BOX_HEAD:][:raw.numel()] = raw
        return box

    def finish(self, plan):
        boxes = self._whole.view(self._ranks.count, -1)
        heads = torch.cat([box[:_BOX_HEAD] for box in boxes]).view(torch.int64).view(-1, 2)
        most = int(heads[:, 1].max())
        if most > plan.room:
            plan.room = max(most, plan.room + plan.room // 4)
            return True
        self.blocks = [self._rows_of(box, int(rows)) for box, (rows, _) in zip(boxes, heads)]
        return False

    def _rows_of(self, box, rows):
        shape = (rows, *self._model.shape[1:])
        size = rows * self._model[:1].new_empty((1, *self._model.shape[1:])).numel() \
            * self._model.element_size()
        raw = box[_BOX_HEAD:].contiguous().view(torch.uint8)[:size]
        return _of_bytes(raw, self._model.dtype, shape)


class Gathering(_Boxes):
    """Everybody's rows for everybody, rank by rank."""
    kind, _operation = 'allgather', 'gather'

    def __init__(self, ranks, tensor):
        if tensor.dim() == 0:
            raise mismatch('allgather of a tensor without dimensions; call view(1) first')
        super().__init__(ranks, [tensor], tensor)
        self.text = f"allgather of {told(tensor, ['*', *tensor.shape[1:]])}"
        nothing = tensor.detach()[:0].clone()
        self.neutral = lambda: Gathering(ranks, nothing)


class Exchange(_Boxes):
    """From each rank to each rank some rows; `splits`: how many this one has for each."""
    kind, _operation, neutral = 'alltoall', 'all-to-all', None

    def __init__(self, ranks, tensor, splits):
        splits = _checked_splits(ranks, tensor, splits)
        super().__init__(ranks, list(tensor.detach().split(splits)), tensor)
        self.text = f"alltoall of {told(tensor, ['*', *tensor.shape[1:]])}"


def _checked_splits(ranks, tensor, splits):
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
