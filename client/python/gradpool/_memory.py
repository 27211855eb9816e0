"""Where values lie: the address of a tensor's or a buffer's float32 values, or a clear refusal.

Nothing is copied or converted (Y5) and nothing is kept; the caller holds the object for as long as
it is lent."""
import ctypes
import sys

from .errors import mismatch


def address(value, elements, what):
    """Address of `elements` float32 values in `value`.

    value     torch.Tensor on the CPU, numpy array, or any writable buffer of format 'f'
    elements  how many there must be, of any shape
    what      how errors call it, for example "gradient of 'fc.weight'"

    Raises Mismatch: another dtype, device or size, not contiguous, read-only."""
    torch = sys.modules.get('torch')
    if torch is not None and isinstance(value, torch.Tensor):
        return _address_of_torch(value, elements, what, torch)
    return _address_of_buffer(value, elements, what)


def _address_of_torch(value, elements, what, torch):
    if value.layout is not torch.strided:
        raise mismatch(f'{what}: layout {value.layout}, expected a dense tensor; call to_dense()')
    if value.device.type != 'cpu':
        raise mismatch(f'{what}: on device {value.device}, expected cpu; call cpu() first')
    if value.dtype is not torch.float32:
        raise mismatch(f'{what}: dtype {value.dtype}, expected torch.float32; call float() first')
    if not value.is_contiguous():
        raise mismatch(f'{what}: not contiguous; call contiguous() first')
    _check_elements(value.numel(), elements, what)
    return value.data_ptr()


def _address_of_buffer(value, elements, what):
    try:
        view = memoryview(value)
    except TypeError:
        raise mismatch(f'{what}: a {type(value).__name__}, expected a torch tensor, a numpy array '
                       'or another buffer of float32') from None
    with view:
        if view.format.lstrip('@=<') != 'f':
            raise mismatch(f"{what}: buffer format '{view.format}', expected float32 ('f')")
        if not view.c_contiguous:
            raise mismatch(f'{what}: not contiguous; make a contiguous copy first')
        if view.readonly:
            raise mismatch(f'{what}: read-only, expected writable memory')
        _check_elements(view.nbytes // 4, elements, what)
        if view.nbytes == 0:
            return None
        with view.cast('B') as raw:
            return ctypes.addressof(ctypes.c_char.from_buffer(raw))


def _check_elements(found, elements, what):
    if found != elements:
        raise mismatch(f'{what}: {found} elements, expected {elements}')
