"""Addresses of Python values. An address stays valid while the library uses the value. No value is
copied or converted (Y5). The error for a refused value states the reason."""
import ctypes
import sys

from ..errors import mismatch


# Formats of the buffer protocol, which has no format for bfloat16. int64 is 'l' where a C long has
# 64 bits.
_FORMATS = {'float32': 'f', 'float64': 'd', 'float16': 'e', 'int32': 'i', 'int64': 'ql'}


class Loan:
    """Buffers that the library uses during a request (Y2)."""

    def __init__(self, *kept):
        self._kept = list(kept)
        self._views = []

    def address(self, value, elements, what, dtype, is_read=False):
        """Returns the address of `elements` values of `dtype` in `value`, valid until end(). Until
        then a Python buffer raises BufferError if its size is changed. A torch tensor has no such
        check.

        value     torch.Tensor on the CPU, numpy array, or any buffer with that format; writable,
                  unless the library only reads the values (`is_read`)
        elements  required number of values, in any shape
        what      name in errors, for example "gradient of 'fc.weight'"
        dtype     "float32" and so on

        Raises Mismatch for another dtype, device or size, and for memory that is not contiguous, or
        that is read-only and not `is_read`."""
        torch = sys.modules.get('torch')
        if torch is not None and isinstance(value, torch.Tensor):
            self._kept.append(value)
            return _address_of_torch(value, elements, what, dtype, torch)
        try:
            view = memoryview(value)
        except TypeError:
            raise mismatch(f'{what}: a {type(value).__name__}, expected a torch tensor, a numpy '
                           f'array or another buffer of {dtype}') from None
        self._views.append(view)
        return _address_of_buffer(view, elements, what, dtype, is_read)

    def end(self):
        """Releases all buffers. May be called again."""
        views, self._views, self._kept = self._views, [], []
        for view in views:
            view.release()


def _address_of_torch(value, elements, what, dtype, torch):
    if value.layout is not torch.strided:
        raise mismatch(f'{what}: layout {value.layout}, expected a dense tensor; call to_dense()')
    if not value.is_cpu:
        raise mismatch(f'{what}: on device {value.device}, expected cpu; call cpu() first')
    if value.dtype is not getattr(torch, dtype):
        raise mismatch(f'{what}: dtype {value.dtype}, expected torch.{dtype}; '
                       f'call to(torch.{dtype}) first')
    if not value.is_contiguous():
        raise mismatch(f'{what}: not contiguous; call contiguous() first')
    _check_elements(value.numel(), elements, what)
    return value.data_ptr()


def _address_of_buffer(view, elements, what, dtype, is_read):
    formats = _FORMATS.get(dtype, '')
    if view.format.lstrip('@=<') not in list(formats):
        wanted = f"{dtype} ('{formats[0]}')" if formats else f'a torch tensor of {dtype}'
        raise mismatch(f"{what}: buffer format '{view.format}', expected {wanted}")
    if not view.c_contiguous:
        raise mismatch(f'{what}: not contiguous; make a contiguous copy first')
    if view.readonly and not is_read:
        raise mismatch(f'{what}: read-only, expected writable memory')
    _check_elements(view.nbytes // view.itemsize, elements, what)
    if view.nbytes == 0:
        return None
    with view.cast('B') as raw:
        if view.readonly:       # ctypes refuses such a buffer
            import numpy
            return numpy.frombuffer(raw, numpy.uint8).ctypes.data
        return ctypes.addressof(ctypes.c_char.from_buffer(raw))


def _check_elements(found, elements, what):
    if found != elements:
        raise mismatch(f'{what}: {found} elements, expected {elements}')
