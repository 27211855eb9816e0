"""Detects that the script has written parameters since the last write of the lanes: with
load_state_dict(), clamping, averages, p.data or numpy. Some of these writes do not change the
version of a tensor, so sums over the bytes are compared."""
import torch

from .._native.states import Sum
from .._tensors.cuda import is_on_gpu
from ..errors import mismatch


class Written:
    """Groups of parameters that lanes have written.

    names  {id of a parameter: its name}, for errors"""

    def __init__(self, names):
        self._names = names
        self._groups = {}       # key -> _Group
        self._sums = {}         # key -> sum of the group at note()

    def note(self, key, parameters):
        """Stores the sum of a group after lanes have written its parameters, on the stream of the
        calling thread."""
        group = self._groups.get(key)
        if group is None or not group.has(parameters):
            group = self._groups[key] = _Group(parameters, self._names)
        self._sums[key] = group.sum()

    def sum_of(self, parameters):
        """Returns the sum over the present bytes of parameters: a number, or a tensor on a GPU."""
        return _Group(parameters, self._names).sum()

    def forget(self):
        """Deletes the sums before lanes write."""
        self._sums.clear()

    def is_so(self):
        """Returns whether the sum of any group has changed. Raises Mismatch if a parameter cannot
        be stepped any more, for example after model.half()."""
        return any(not _are_equal(self._groups[key].sum(), known)
                   for key, known in self._sums.items())


def _are_equal(now, before):
    return torch.equal(now, before) if isinstance(now, torch.Tensor) else now == before


class _Group:
    def __init__(self, parameters, names):
        self._parameters, self._names = list(parameters), names
        self._ids = list(map(id, parameters))
        self._elements = [one.numel() for one in self._parameters]
        self._sum, self._places = Sum([4 * elements for elements in self._elements]), None

    def has(self, parameters):
        return list(map(id, parameters)) == self._ids

    def sum(self):
        places = [one.data_ptr() for one in self._parameters]
        if places != self._places:
            self._check()
            self._places = places
        if self._parameters and is_on_gpu(self._parameters[0]):
            return _sums_there(self._parameters)
        return self._sum.over(places)

    def _check(self):
        for one, elements in zip(self._parameters, self._elements):
            if one.dtype is not torch.float32 or one.numel() != elements:
                raise mismatch(f"parameter '{self._names[id(one)]}' has {one.numel()} elements of "
                               f'{one.dtype}, lanes step {elements} of torch.float32: change a '
                               'model before attach()')
            if not one.is_contiguous():
                raise mismatch(f"parameter '{self._names[id(one)]}' is not contiguous any more; "
                               'lanes step contiguous ones: assign contiguous()')


def _sums_there(parameters):
    """Computes the sum on a GPU: two sums over the 32-bit words of all parameters, one of them
    weighted by position. The number of kernels does not depend on the number of parameters."""
    words = torch.cat([one.detach().reshape(-1) for one in parameters]).view(torch.int32)
    by_place = torch.arange(1, 2 * words.numel() + 1, 2, dtype=torch.int32, device=words.device)
    return torch.stack([words.sum(), (words * by_place).sum()])
