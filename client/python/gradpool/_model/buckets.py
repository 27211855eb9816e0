"""Where the gradients of one of DDP's buckets lie, and their means, for as long as DDP keeps it.

The memory of a bucket is DDP's own and cannot be lent. But what a hook's Future holds is copied by
DDP into .grad, so means may land in lent memory; and where .grad are views of the bucket
(gradient_as_bucket_view=True), they are the very tensors that DDP adds gradients up in, and can be
moved into lent memory: then nothing is copied (Y20)."""
from .._native.binding import Item
from .._native.memory import Loan
from .._tensors.carriers import is_lendable, lent
from .._tensors.cuda import Crossing, is_on_gpu
from ..errors import mismatch

# Moving a view costs as much as copying a gradient of this length out of the bucket and back.
MOVED_BYTES = 16 << 10


def bucket_of(job, bucket, parts, are_views, lends):
    """An object that starts the means over a torch.distributed.GradBucket at each coming of it, by
    start(job, bucket): (the Request, what gives the tensor that DDP gets once that is over).

    parts      [(tensor, its first byte in the bucket)], which cover it
    are_views  .grad are views of it
    lends      lent memory is of use"""
    buffer = bucket.buffer()
    if is_on_gpu(buffer):
        return Staged(bucket, parts, job)
    if lends and is_lendable(buffer) and not (are_views and _is_crumbled(bucket)):
        flat = lent(job, buffer.numel() * (1 + are_views), buffer.dtype)
        if flat is not None:
            return Moved(bucket, parts, flat) if are_views else Copied(bucket, parts, flat)
    return Copied(bucket, parts, buffer)


def _is_crumbled(bucket):
    """Whether it costs less to copy the gradients of a bucket than to move each of them."""
    size = bucket.buffer().numel() * bucket.buffer().element_size()
    return size < MOVED_BYTES * len(bucket.parameters())


def parts_of(bucket, tensors):
    """Each tensor of the bucket's parameters with its first byte in the bucket. Mismatch: a
    gradient is of another size."""
    for gradient, tensor in zip(bucket.gradients(), tensors):
        if gradient.numel() != tensor.elements:     # lanes would go beyond it
            raise mismatch(f"gradient of '{tensor.name}': {gradient.numel()} elements, declared "
                           f'were {tensor.elements}: change a model before attach()')
    return list(zip(tensors, _offsets(bucket)))


def is_stand_in(bucket):
    """Whether no gradient of the model lies in a bucket that was not seen before. On a rank that
    has left the loop of torch's Join the bucket has zeros, and each .grad is an earlier step's
    (Y70). Only for gradients that are views of buckets."""
    return not any(parameter.grad is not None and parameter.grad.data_ptr() == own.data_ptr()
                   for parameter, own in zip(bucket.parameters(), bucket.gradients()))


def _items(parts, gradients, results):
    """`gradients`, `results`: tensors that hold the bucket's."""
    items, given, taken = (Item * len(parts))(), gradients.data_ptr(), results.data_ptr()
    for item, (tensor, first) in zip(items, parts):
        item.tensor, item.gradient, item.result = tensor.handle, given + first, taken + first
    return items


def _tensors_of(parts):
    return [tensor for tensor, _ in parts]


def _offsets(bucket):
    """Offsets of the parameters' slices, in bytes."""
    start = bucket.buffer().data_ptr()
    return [gradient.data_ptr() - start for gradient in bucket.gradients()]


def pieces_of(bucket, flat):
    """The gradients of a bucket whose values are in `flat`, wherever that lies."""
    size = bucket.buffer().element_size()
    return [flat[offset // size:][:gradient.numel()].view(gradient.shape)
            for offset, gradient in zip(_offsets(bucket), bucket.gradients())]


class Copied:
    """Gradients in DDP's memory; their means land in `value`, which may be that."""

    def __init__(self, bucket, parts, value):
        self._tensors, self._value, self._buffer = _tensors_of(parts), value, bucket.buffer()
        self._items = _items(parts, self._buffer, value)

    def start(self, job, _):
        return (job.push_items(self._tensors, self._items, Loan(self._buffer, self._value)),
                lambda: self._value)


class Moved:
    """Gradients in one half of `flat`, which DDP's views are moved into when they are first seen;
    the means land in the other, and the views follow them there. Both halves have one storage: by
    that DDP sees that it has nothing to copy. Where it has, it takes what it is given from the
    beginning of its storage: so that must be one of its own."""

    def __init__(self, bucket, parts, flat):
        self._tensors, self._now = _tensors_of(parts), 0
        self._halves = first, second = flat.view(2, -1).unbind()
        self._buffer = bucket.buffer()          # kept for its address
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
    """Gradients on a GPU, which go to the host and back. Where they lie there is free again when
    the next ones set off: the script's stream has waited for the copy from there by then."""

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
