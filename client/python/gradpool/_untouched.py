"""Whether gradients are what backward() has left, where lanes have stepped with them already: what
is clipped or scaled between backward() and step() would be lost."""
import torch

from ._cuda import is_on_gpu


class Untouched:
    """Of one optimizer's parameters, from one step to the next.

    A version tells of each write but those by `.data` and numpy. Whoever writes so does it in each
    step from the first on, so bytes are compared in steps 1, 2, 4, 8 and so on."""

    def __init__(self):
        self._sent = []         # (a parameter, its gradient in the bucket)
        self._left = []         # (the two, the version of .grad, whether bytes are compared)
        self._steps = 0

    def expect(self, parameters, gradients):
        """Called in backward(), for each bucket."""
        if not self._sent:
            _after_backward(self._note)
        self._sent.extend(zip(parameters, gradients))

    def _note(self):
        self._steps += 1
        compares = self._steps & self._steps - 1 == 0
        self._left = [(one, gradient, _version_of(one), compares and _holds(one, gradient))
                      for one, gradient in self._sent]

    def are_so(self):
        """Called by step()."""
        left, self._left, self._sent = self._left, [], []
        return all(_is_left(*one) for one in left)


def _is_left(parameter, gradient, version, compares):
    now = _version_of(parameter)
    if now == version and not compares:
        return True
    return _holds(parameter, gradient)


def _version_of(parameter):
    gradient = parameter.grad
    return None if gradient is None else gradient._version


def _holds(parameter, gradient):
    """A write of what was there before changes a version alone. False where that cannot be told:
    `.grad` lies in the bucket, or on a GPU."""
    found = parameter.grad
    return (found is not None and not is_on_gpu(parameter) and
            found.data_ptr() != gradient.data_ptr() and torch.equal(found, gradient))


def _after_backward(function):
    """Calls it behind what DDP does at the end, which it asks for after its last bucket."""
    queue = torch.autograd.Variable._execution_engine.queue_callback
    queue(lambda: queue(function))
