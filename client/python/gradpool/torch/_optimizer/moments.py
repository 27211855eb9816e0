"""Detects that a script has changed the state of an optimizer since the last step: moments, step
counts, or whole entries, as by load_state_dict(). A write through `.data` or numpy does not change
the version of a tensor, so the values are compared."""
import torch

from ..._tensors.contents import Contents


class Moments:
    """The state of one optimizer after its last step."""

    def __init__(self):
        self._contents = Contents()
        self._tensors, self._noted = [], None

    def note(self, optimizer):
        """Stores the present state, whose tensors are kept until the next call."""
        self._tensors, others = _parts(optimizer)
        self._noted = others, self._contents.of(self._tensors)

    def are_so(self, optimizer):
        """Returns whether the state is as it was at note()."""
        tensors, others = _parts(optimizer)
        return (others, self._contents.of(tensors)) == self._noted


def _parts(optimizer):
    """Returns the tensors of the state, and the places of these tensors with all other values."""
    tensors, others = [], []
    for parameter, entries in optimizer.state.items():
        _take((id(parameter),), entries, tensors, others)
    return tensors, others


def _take(place, value, tensors, others):
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        others.append((place, value.dtype, value.shape))
    elif isinstance(value, dict):
        for name, one in value.items():
            _take((*place, name), one, tensors, others)
    elif isinstance(value, (list, tuple)):
        for i, one in enumerate(value):
            _take((*place, i), one, tensors, others)
    else:
        others.append((place, repr(value)))
