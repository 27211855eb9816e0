"""A carrier is the form in which a tensor of torch is sent: contiguous, one-dimensional, of a
dtype that the service has, on the device of the tensor. A tensor that already has this form is its
own carrier, and nothing is copied."""
import errno
import logging
import weakref

import torch

from .._process import leftovers      # noqa: imported before anything is in lent memory
from ..errors import GradpoolError, mismatch

_HALVES = {torch.float16, torch.bfloat16}
_NATIVE = {torch.float32, torch.float64, torch.int32, torch.int64} | _HALVES
_WORD = torch.int32
_WORD_BYTES = 4
# A tensor of up to this length has staging memory of its own: its next round need not wait for
# COMMIT (client/lib, L17), and staging costs less than whole pages.
_SHORT_BYTES = 64 << 10
_NO_ROOM = errno.ENOMEM, errno.ENOSPC, errno.EMFILE

_full = weakref.WeakSet()   # jobs that have no more memory to lend
# attribute of torch 2, or of torch 1
_storage_of = getattr(torch.Tensor, 'untyped_storage', torch.Tensor.storage)


def carrier_of(tensor, is_moved):
    """Returns the carrier of a tensor, with its values. The carrier is the tensor's own memory
    if that has the right form.

    is_moved  values arrive unchanged: other dtypes are sent as bytes, padded to whole words.
              Otherwise there is arithmetic on them, and short integers are widened for it"""
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
    """Returns the values in one dimension, with a stride of one: the tensor's own memory if it is
    contiguous. With one element such a tensor may have any stride. view() keeps the stride, but
    then refuses to take the values as another dtype (Y75)."""
    flat = tensor.contiguous().view(-1)
    return flat if flat.stride(0) == 1 else flat.as_strided(flat.shape, (1,))


def widened(carrier):
    """Widens a sum for arithmetic after it has landed, because a sum of halves may exceed their
    range although the final value does not."""
    return carrier.float() if carrier.dtype in _HALVES else carrier


def is_half(dtype):
    return dtype in _HALVES


def scaled(values, factor):
    """Multiplies values by a factor, in their dtype. Halves are multiplied as float32. Integers are
    multiplied exactly by a whole factor, and by any other as float64, rounded towards 0."""
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
    """Returns whether integers of that dtype can be multiplied by the factor as integers."""
    return dtype is not torch.bool and float(factor).is_integer() \
        and abs(factor) <= torch.iinfo(dtype).max


def mean_of(total, count, factor=1.0):
    """Turns a sum of `count` values into their mean times a factor; integers round down."""
    if total.is_floating_point() or total.is_complex():
        return scaled(total.div(count), factor)
    if _is_whole(factor, total.dtype):
        return (total * int(factor)).div(count, rounding_mode='floor')
    return total.double().mul(factor).div(count).floor().to(total.dtype)


def is_its_own(tensor, carrier):
    """Returns whether results in the carrier are results in the tensor."""
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
    """Returns whether the tensor's values may be in memory of a job: the tensor is not short, and
    its storage has nothing else."""
    size = tensor.numel() * tensor.element_size()
    return (size > _SHORT_BYTES and tensor.is_cpu and tensor.layout is torch.strided
            and tensor.dtype in _NATIVE and tensor.is_contiguous() and tensor._base is None
            and _storage_of(tensor).nbytes() == size)


def lent(job, elements, dtype):
    """Returns an uninitialized tensor of `elements` elements that lanes use in place (Y20). None:
    the job has no more memory to lend, which is logged once."""
    if job in _full:
        return None
    size = elements * torch.empty(0, dtype=dtype).element_size()
    try:
        return torch.frombuffer(job.alloc(size), dtype=dtype)
    except GradpoolError as error:
        if error.errno not in _NO_ROOM:
            raise
        _full.add(job)
        logging.getLogger('gradpool').info('%s: %s; what has no room is copied', job, error)
        return None


def lent_like(job, tensor):
    """Returns a lent tensor of the same shape and dtype. None: no memory can be lent, or `tensor`
    should have its own memory."""
    made = lent(job, tensor.numel(), tensor.dtype) if is_lendable(tensor) else None
    return made if made is None else made.view(tensor.shape)


def told(tensor, shape=None):
    """Returns a tensor's dtype and shape as text, also for texts that ranks compare."""
    shape = list(tensor.shape) if shape is None else shape
    return f"{str(tensor.dtype).removeprefix('torch.')}{shape}".replace("'", '')


def check_tensor(tensor):
    if not isinstance(tensor, torch.Tensor):
        raise mismatch(f'a {type(tensor).__name__}, expected a torch.Tensor')


def check_place(tensor):
    """Raises Mismatch if no result can be written there."""
    check_tensor(tensor)
    if tensor.layout is torch.strided and not tensor.is_contiguous() and any(
            stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape)):
        raise mismatch(f'no result can be put into {told(tensor)}, of which several elements are '
                       'one in memory (expand()); give its clone()')


def check_alike(tensors, other, what):
    """Raises Mismatch unless each has the size and dtype of `other`."""
    for tensor in tensors:
        if (tensor.numel(), tensor.dtype) != (other.numel(), other.dtype):
            raise mismatch(f'{what}: a tensor of {tensor.numel()} {tensor.dtype} beside one of '
                           f'{other.numel()} {other.dtype}')
