"""Checks that gradients are unchanged after backward(), because lanes have already used them for a
step. Clipping or scaling between backward() and step() would be lost."""
import torch

from .._tensors.cuda import is_on_gpu


class Untouched:
    """Gradients of one optimizer's parameters, from one step to the next.

    without  parameters for which backward() has set no gradient, because no rank has one

    A tensor's version shows each write except those through `.data` and numpy. A script with such a
    write has it in each step from the first on, so bytes are compared in steps 1, 2, 4, 8 and so
    on."""

    def __init__(self):
        self._parameters, self._gradients = [], []      # gradients that are views of the bucket
        self._versions, self._held = None, ()   # versions of .grad; None: backward() has failed
        self._steps, self.without = 0, []

    def expect(self, parameters, gradients):
        """Called in backward() for each bucket."""
        if not self._parameters:
            _after_backward(self._note)
        self._parameters += parameters
        self._gradients += gradients

    def _note(self):
        self._steps += 1
        self._versions, self._held = _versions_of(self._parameters), ()
        self.without = [one for one, version in zip(self._parameters, self._versions)
                        if version is None] if None in self._versions else []
        if self._steps & self._steps - 1 == 0:
            self._held = [pair for pair in zip(self._parameters, self._gradients) if _holds(*pair)]

    def are_so(self):
        """Called by step()."""
        parameters, gradients, before = self._parameters, self._gradients, self._versions
        self._parameters, self._gradients, self._versions = [], [], None
        if before is None:
            return True
        now = _versions_of(parameters)
        written = [] if now == before else [
            pair for *pair, version, other in zip(parameters, gradients, now, before)
            if version != other]
        return all(_holds(*pair) for pair in [*written, *self._held])


def _versions_of(parameters):
    return [None if gradient is None else gradient._version
            for gradient in [one.grad for one in parameters]]


def _holds(parameter, gradient):
    """Returns whether the bytes are unchanged: writing the same values only changes the version.
    Returns False if this is unknown, because `.grad` is in the bucket or on a GPU."""
    found = parameter.grad
    return (found is not None and not is_on_gpu(parameter) and
            found.data_ptr() != gradient.data_ptr() and torch.equal(found, gradient))


def _after_backward(function):
    """Calls the function after DDP's own work at the end of backward(), which DDP queues after its
    last bucket."""
    queue = torch.autograd.Variable._execution_engine.queue_callback
    queue(lambda: queue(function))
