"""A carrier is the form in which a tensor of torch is sent: contiguous and one-dimensional, on the
device of the tensor, with a dtype of the service. If a tensor already has this form, it is its own
carrier, and nothing is copied."""
import errno
import logging
import weakref

import torch

from .._process import leftovers      # noqa: imported before any gradient is shared
from ..errors import GradpoolError, mismatch

_HALVES = {torch.float16, torch.bfloat16}
_NATIVE = {torch.float32, torch.float64, torch.int32, torch.int64} | _HALVES
_WORD = torch.int32
_WORD_BYTES = 4
# Maximum bytes of a tensor with its own staging memory, which costs less than whole pages. With
# staging memory the next round need not wait for COMMIT (client/lib, L17).
_SHORT_BYTES = 64 << 10
_NO_ROOM = errno.ENOMEM, errno.ENOSPC, errno.EMFILE

_full = weakref.WeakSet()   # jobs that cannot lend more memory
# the attribute of torch 2, or of torch 1
_storage_of = getattr(torch.Tensor, 'untyped_storage', torch.Tensor.storage)


def carrier_of(tensor, is_moved):
    """Returns a tensor with the values in the form for sending. If the tensor already has this
    form, the result is the tensor itself.

    is_moved  True: only copy values. Other dtypes are then sent as bytes, padded to whole words.
              False: compute with them. Short integers are then sent as wider integers"""
    if tensor.layout is not torch.strided:
        raise mismatch(f'a tensor of layout {tensor.layout}; call to_dense() first')
    flat = flat_of(tensor.detach().resolve_conj().resolve_neg())
    if flat.dtype in _NATIVE:
        return flat
    if flat.is_complex():
        return torch.view_as_real(flat).view(-1)
    if not is_moved:
        return flat.to(_WORD)
    size = flat.numel() * flat.element_size()
    words = torch.zeros(-(-size // _WORD_BYTES), dtype=_WORD, device=flat.device)
    words.view(torch.uint8)[:size] = flat.view(torch.uint8)
    return words


def flat_of(tensor):
    """Returns the values in one dimension with a stride of one. A contiguous tensor shares its
    memory with the result. A tensor with one element may have any stride; view() keeps this stride,
    but refuses a view of another dtype (Y75)."""
    flat = tensor.contiguous().view(-1)
    return flat if flat.stride(0) == 1 else flat.as_strided(flat.shape, (1,))


def widened(carrier):
    """Returns a sum of 16-bit floats as float32. A value may be too large for 16 bits until a later
    factor makes it smaller."""
    return carrier.float() if carrier.dtype in _HALVES else carrier


def is_half(dtype):
    return dtype in _HALVES


def scaled(values, factor):
    """Returns values times a factor, in their dtype. 16-bit floats are multiplied as float32.
    Integers are multiplied exactly by a whole factor. With another factor they are multiplied as
    float64 and rounded towards 0."""
    if factor == 1:
        return values
    if values.dtype in _HALVES:
        return (values.float() * factor).to(values.dtype)
    if values.is_floating_point() or values.is_complex():
        return values * factor
    if _is_whole(factor, values.dtype):
        return values * int(factor)
    return (values.double() * factor).to(values.dtype)


def _is_whole(factor, dtype):
    """Returns whether an integer multiplication by the factor is possible in that dtype."""
    return dtype is not torch.bool and float(factor).is_integer() \
        and abs(factor) <= torch.iinfo(dtype).max


def mean_of(total, count, factor=1.0):
    """Returns the mean of `count` values from their sum, times a factor. Integers are rounded
    down."""
    if total.is_floating_point() or total.is_complex():
        return scaled(total.div(count), factor)
    if _is_whole(factor, total.dtype):
        return (total * int(factor)).div(count, rounding_mode='floor')
    return total.double().mul(factor).div(count).floor().to(total.dtype)


def is_its_own(tensor, carrier):
    """Returns whether a result in the carrier is also in the tensor, without a copy."""
    return carrier.numel() == 0 or (carrier.data_ptr() == tensor.data_ptr()
                                    and tensor.dtype in _NATIVE | {torch.cfloat, torch.cdouble})


def unload(carrier, tensor, is_moved):
    """Copies a carrier's values to its tensor."""
    if is_its_own(tensor, carrier):
        return
    if tensor.is_complex():
        carrier = torch.view_as_complex(carrier.view(-1, 2))
    elif tensor.dtype not in _NATIVE and is_moved:
        size = tensor.numel() * tensor.element_size()
        carrier = carrier.contiguous().view(torch.uint8)[:size].view(tensor.dtype)
    tensor.detach().copy_(carrier.view(tensor.shape))


def is_lendable(tensor):
    """Returns whether the tensor's values may be in memory of a job: the tensor is long,
    is no view, and fills its storage."""
    size = tensor.numel() * tensor.element_size()
    return (size > _SHORT_BYTES and tensor.is_cpu and tensor.layout is torch.strided
            and tensor.dtype in _NATIVE and tensor.is_contiguous() and tensor._base is None
            and _storage_of(tensor).nbytes() == size)


def lent(job, elements, dtype):
    """Returns an uninitialized tensor that lanes use in place (Y20), or None if the job cannot lend
    more memory. Logs a line at the first None of each job."""
    if job in _full:
        return None
    size = elements * torch.empty(0, dtype=dtype).element_size()
    try:
        return torch.frombuffer(job.alloc(size), dtype=dtype)
    except GradpoolError as error:
        if error.errno not in _NO_ROOM:
            raise
        _full.add(job)
        logging.getLogger('gradpool').info('%s: %s; tensors outside of lent memory are copied', job,
                                           error)
        return None


def lent_like(job, tensor):
    """Returns a lent tensor of the same shape and dtype. Returns None if no memory can be lent, or
    `tensor` is too short for lent memory."""
    made = lent(job, tensor.numel(), tensor.dtype) if is_lendable(tensor) else None
    return made if made is None else made.view(tensor.shape)


def told(tensor, shape=None):
    """Returns a tensor's dtype and shape as text, for errors and for texts that ranks compare."""
    shape = list(tensor.shape) if shape is None else shape
    return f"{str(tensor.dtype).removeprefix('torch.')}{shape}".replace("'", '')


def check_tensor(tensor):
    if not isinstance(tensor, torch.Tensor):
        raise mismatch(f'a {type(tensor).__name__}, expected a torch.Tensor')


def check_place(tensor):
    """Raises Mismatch if results cannot be written to the tensor."""
    check_tensor(tensor)
    if tensor.layout is torch.strided and not tensor.is_contiguous() and any(
            stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape)):
        raise mismatch(f'no result can be written to {told(tensor)}, because some of its '
                       'elements share memory (expand()); pass its clone()')


def check_alike(tensors, other, what):
    """Raises Mismatch unless each tensor has the size and dtype of `other`."""
    for tensor in tensors:
        if (tensor.numel(), tensor.dtype) != (other.numel(), other.dtype):
            raise mismatch(f'{what}: a tensor of {tensor.numel()} {tensor.dtype} beside one of '
                           f'{other.numel()} {other.dtype}')
