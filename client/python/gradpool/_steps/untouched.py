"""Checks that gradients are unchanged after backward(), because lanes have already used them for a
step. Clipping or scaling between backward() and step() would be lost."""
import torch

from .._tensors.contents import Contents


class Untouched:
    """Gradients of one optimizer's parameters, from one step to the next.

    without  parameters for which backward() has set no gradient, because no rank has one

    The version of a tensor does not show writes through `.data`. clip_grad_value_() writes so, and
    may do that in a few steps only, so the bytes are summed in each step."""

    def __init__(self):
        self._parameters, self._contents = [], Contents()
        self._is_known, self.without = False, []    # not known: backward() has failed

    def expect(self, parameters):
        """Called in backward(), for each bucket."""
        if not self._parameters:
            _after_backward(self._note)
        self._parameters += parameters

    def _note(self):
        gradients = [one.grad for one in self._parameters]
        self.without = [one for one, gradient in zip(self._parameters, gradients)
                        if gradient is None]
        self._contents.note([one for one in gradients if one is not None])
        self._is_known = True

    def are_so(self):
        """Called by step()."""
        parameters, is_known = self._parameters, self._is_known
        self._parameters, self._is_known = [], False
        if not is_known:
            return True
        without = set(self.without)
        return self._contents.are([one.grad for one in parameters if one not in without]) and \
            not any(one.grad is not None and one.grad.any() for one in self.without)


def _after_backward(function):
    """Calls the function after DDP's own work at the end of backward(), which DDP queues after its
    last bucket."""
    queue = torch.autograd.Variable._execution_engine.queue_callback
    queue(lambda: queue(function))
