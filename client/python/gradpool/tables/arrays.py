"""Keys, rows and gradients of a table: numpy arrays, or torch tensors on the CPU. Every error names
the table (Y5)."""
import sys

import numpy

from ..errors import mismatch


def _is_torch(value):
    torch = sys.modules.get('torch')
    return torch is not None and isinstance(value, torch.Tensor)


class Keys:
    """The keys of a call as uint64. Rows of the call are of the same kind: numpy or torch."""

    def __init__(self, table, keys):
        self._is_torch = _is_torch(keys)
        given = _array_of(keys, f"keys of table '{table.name}'")
        self._values = numpy.ascontiguousarray(given).astype(numpy.uint64, copy=False)
        self.rows_shape = (*given.shape, table.dim)

    @property
    def address(self):
        return self._values.ctypes.data

    def __len__(self):
        return self._values.size

    def empty_rows(self):
        """Returns (an array with one row for each key, its address)."""
        if self._is_torch:
            torch = sys.modules['torch']
            rows = torch.empty(self.rows_shape, dtype=torch.float32, device='cpu')
            return rows, rows.data_ptr()
        rows = numpy.empty(self.rows_shape, numpy.float32)
        return rows, rows.ctypes.data

    def gradients_address(self, gradients, what, loan):
        """Returns the address of the gradients, which have one float32 row for each key. The
        address is valid until the end of the Loan."""
        found = tuple(getattr(gradients, 'shape', self.rows_shape))
        if found != self.rows_shape:
            raise mismatch(f'{what}: shape {found}, expected {self.rows_shape}: one row for each '
                           'key')
        return loan.address(gradients, len(self) * self.rows_shape[-1], what, 'float32',
                            is_read=True)


def _array_of(keys, what):
    """Returns the keys as an array of whole numbers that are not negative."""
    array = numpy.asarray(_numpy_of(keys, what) if _is_torch(keys) else keys)
    if array.dtype.kind not in 'iu' and (array.size or array.dtype.kind != 'f'):
        raise mismatch(f'{what}: dtype {array.dtype}, expected whole numbers; use an array of '
                       'int64 or uint64')
    if array.dtype.kind == 'i' and array.size and array.min() < 0:
        position = int((array.ravel() < 0).argmax())
        raise mismatch(f'{what}: key {array.flat[position]} at position {position}, expected keys '
                       'from 0; clear the highest bit of hashes')
    return array


def _numpy_of(keys, what):
    if keys.layout is not sys.modules['torch'].strided:
        raise mismatch(f'{what}: layout {keys.layout}, expected a dense tensor; call to_dense()')
    if not keys.is_cpu:
        raise mismatch(f'{what}: on device {keys.device}, expected cpu; call cpu() first')
    return keys.detach().numpy()
