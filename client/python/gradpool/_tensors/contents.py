"""Compares the values of tensors at two moments. A write through `.data` or numpy does not change
the version of a tensor."""
import operator

import torch

from .._native.states import Sum

_DATA_PTR = operator.methodcaller('data_ptr')


class Contents:
    """Values of tensors at one moment. An entry may be None. For tensors on a GPU, sparse tensors
    and tensors with gaps in memory, versions are compared instead of values."""

    def __init__(self):
        self._tensors, self._places = [], None
        self._lengths, self._sum, self._noted = None, None, None

    def note(self, tensors):
        """Stores the present values and deletes the values stored before."""
        self._tensors, self._places = tensors, None
        self._noted = self.of(tensors)

    def are(self, tensors):
        """Returns whether each tensor equals the values that note() has stored for the tensor at
        the same position in the list."""
        noted, self._tensors = self._tensors, []
        if len(tensors) != len(noted):
            return False
        if self._places is not None and all(map(operator.is_, tensors, noted)) and \
                list(map(_DATA_PTR, tensors)) == self._places:
            return self._sum.over(self._places) == self._noted[0]
        return self.of(tensors) == self._noted

    def of(self, tensors):
        """Returns a value that is equal for equal values of as many tensors, as long as the tensors
        exist. Without note(), which is faster for the same tensors."""
        is_dense = list(map(_is_dense, tensors))
        dense = [one for one, is_one in zip(tensors, is_dense) if is_one]
        others = [None if one is None else (id(one), one._version)
                  for one, is_one in zip(tensors, is_dense) if not is_one]
        lengths = [one.numel() * one.element_size() for one in dense]
        if lengths != self._lengths:
            self._lengths, self._sum = lengths, Sum(lengths)
        places = list(map(_DATA_PTR, dense))
        self._places = None if others else places
        return self._sum.over(places), lengths, others


def _is_dense(tensor):
    """Returns whether the values are in the memory of the host, without gaps."""
    if tensor is None or not tensor.is_cpu or tensor.layout is not torch.strided:
        return False
    return tensor.is_contiguous() or \
        tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
