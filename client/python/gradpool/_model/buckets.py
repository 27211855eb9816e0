"""The gradients of one bucket of DDP and the memory of their means.

DDP allocates the memory of a bucket, so a lane cannot use this memory in place. DDP copies the
tensor in the hook's Future into .grad, so lanes can write the means to lent memory. With
gradient_as_bucket_view=True each .grad is a view of the bucket, where DDP accumulates gradients.
Such views can be moved to lent memory, and then nothing is copied (Y20)."""
from .._native.binding import Item
from .._native.memory import Loan
from .._tensors.carriers import is_lendable, lent
from .._tensors.cuda import Crossing, is_on_gpu
from ..errors import mismatch

# For a gradient of at least this length, moving its view costs less than copying the gradient in
# both directions.
MOVED_BYTES = 16 << 10


def bucket_of(job, bucket, parts, are_views, lends):
    """Returns an object for a torch.distributed.GradBucket. In each step its start(job, bucket)
    starts the means, and returns a Request and a function. After the end of the Request this
    function returns the tensor for DDP.

    parts      [(tensor, its first byte in the bucket)], which cover the bucket
    are_views  whether each .grad is a view of the bucket
    lends      whether a lane can use lent memory"""
    buffer = bucket.buffer()
    if is_on_gpu(buffer):
        return Staged(bucket, parts, job)
    if lends and is_lendable(buffer) and not (are_views and _is_crumbled(bucket)):
        flat = lent(job, buffer.numel() * (1 + are_views), buffer.dtype)
        if flat is not None:
            return Moved(bucket, parts, flat) if are_views else Copied(bucket, parts, flat)
    return Copied(bucket, parts, buffer)


def _is_crumbled(bucket):
    """Returns whether copying all gradients costs less than moving all their views."""
    size = bucket.buffer().numel() * bucket.buffer().element_size()
    return size < MOVED_BYTES * len(bucket.parameters())


def parts_of(bucket, tensors):
    """Yields each tensor of the bucket's parameters with its first byte in the bucket. Raises
    Mismatch if a gradient has another size."""
    for gradient, tensor in zip(bucket.gradients(), tensors):
        # without this check lanes would write beyond the end of the gradient
        if gradient.numel() != tensor.elements:
            raise mismatch(f"gradient of '{tensor.name}': {gradient.numel()} elements, declared "
                           f'were {tensor.elements}: change a model before attach()')
    return list(zip(tensors, _offsets(bucket)))


def is_stand_in(bucket):
    """Returns whether the gradients of this bucket belong to an earlier step. If a rank has left
    the loop of torch's Join, the bucket contains zeros, and each .grad contains the gradient of an
    earlier step (Y70). Only for gradients that are views of buckets."""
    return not any(parameter.grad is not None and parameter.grad.data_ptr() == own.data_ptr()
                   for parameter, own in zip(bucket.parameters(), bucket.gradients()))


def _items(parts, gradients, results):
    """Returns the Items of a bucket. `gradients`, `results`: flat tensors with the bucket's
    layout."""
    items, given, taken = (Item * len(parts))(), gradients.data_ptr(), results.data_ptr()
    for item, (tensor, first) in zip(items, parts):
        item.tensor, item.gradient, item.result = tensor.handle, given + first, taken + first
    return items


def _tensors_of(parts):
    return [tensor for tensor, _ in parts]


def _offsets(bucket):
    """Returns the offsets of the parameters' slices, in bytes."""
    start = bucket.buffer().data_ptr()
    return [gradient.data_ptr() - start for gradient in bucket.gradients()]


def pieces_of(bucket, flat):
    """Returns the gradients of a bucket as parts of `flat`, which holds its values in any
    memory."""
    size = bucket.buffer().element_size()
    return [flat[offset // size:][:gradient.numel()].view(gradient.shape)
            for offset, gradient in zip(_offsets(bucket), bucket.gradients())]


class Copied:
    """Gradients in DDP's memory. Lanes write the means to `value`, which may be the same memory."""

    def __init__(self, bucket, parts, value):
        self._tensors, self._value, self._buffer = _tensors_of(parts), value, bucket.buffer()
        self._items = _items(parts, self._buffer, value)

    def start(self, job, _):
        return (job.push_items(self._tensors, self._items, Loan(self._buffer, self._value)),
                lambda: self._value)


class Moved:
    """Gradients in one half of `flat`. DDP's views are moved to this half when start() first gets
    them. Lanes write the means to the other half, and the views are then moved to that half. Both
    halves have one storage: DDP compares storages and then copies nothing. If DDP does copy, DDP
    reads from the start of the storage, so `flat` has a separate storage."""

    def __init__(self, bucket, parts, flat):
        self._tensors, self._now = _tensors_of(parts), 0
        self._halves = first, second = flat.view(2, -1).unbind()
        self._buffer = bucket.buffer()          # the reference keeps the address in use
        size = self._buffer.element_size()
        self._offsets = [offset // size for offset in _offsets(bucket)]
        self._views = [None] * len(self._offsets)       # views that were moved
        self._items = [_items(parts, first, second), _items(parts, second, first)]

    def start(self, job, bucket):
        half = self._halves[self._now]
        for i, (parameter, own) in enumerate(zip(bucket.parameters(), bucket.gradients())):
            view = parameter.grad
            place = half.data_ptr() + self._offsets[i] * half.element_size()
            if view is None:
                if self._views[i] is None:
                    self._piece(half, i, own).copy_(own)
            elif view.data_ptr() != place:
                view.data = self._piece(half, i, view).copy_(view)
            self._views[i] = self._views[i] if view is None else view
        request = job.push_items(self._tensors, self._items[self._now], Loan(*self._halves))
        return request, self._land

    def _piece(self, half, i, like):
        return half.as_strided(like.shape, like.stride(),
                               half.storage_offset() + self._offsets[i])

    def _land(self):
        self._now = 1 - self._now
        half = self._halves[self._now]
        for i, view in enumerate(self._views):
            if view is not None:
                view.data = self._piece(half, i, view)
        return half.clone() if any(view is None for view in self._views) else half


class Staged:
    """Gradients on a GPU, which are copied to the host and back. Their memory on the host may be
    used for the next gradients, because the script's stream has waited for the copy back."""

    def __init__(self, bucket, parts, job):
        self._tensors, self._buffer = _tensors_of(parts), bucket.buffer()
        crossing = Crossing(job, self._buffer.device)
        self._sent, self._landing = crossing.room(self._buffer), crossing.room(self._buffer)
        self._items = _items(parts, self._sent, self._landing)

    def start(self, job, _):
        crossing = Crossing(job, self._buffer.device)
        crossing.out(self._buffer, self._sent)
        crossing.back(self._buffer, self._landing)
        request = crossing.begin(lambda: job.push_items(self._tensors, self._items,
                                                        Loan(self._sent, self._landing)))
        return request, lambda: crossing.land(lambda: self._buffer)
