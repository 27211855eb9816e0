"""Checks that gradients are unchanged after backward(). Clipping or scaling between backward() and
step() would have no effect, because lanes have already used the gradients for a step."""
import torch

from .._tensors.contents import Contents


class Untouched:
    """Checks the gradients of one optimizer's parameters, in each step.

    without  parameters that have a gradient on no rank after backward()

    The version of a tensor does not change with writes through `.data`. clip_grad_value_() writes
    in this way, and perhaps in a few steps only. So each step computes a sum over the bytes."""

    def __init__(self):
        self._parameters, self._contents = [], Contents()
        self._is_known, self.without = False, []    # no sums are known after a failed backward()

    def expect(self, parameters):
        """Called in backward(), with the parameters of each bucket."""
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
        """Returns whether the gradients are unchanged. Called by step()."""
        parameters, is_known = self._parameters, self._is_known
        self._parameters, self._is_known = [], False
        if not is_known:
            return True
        without = set(self.without)
        return self._contents.are([one.grad for one in parameters if one not in without]) and \
            not any(one.grad is not None and one.grad.any() for one in self.without)


def _after_backward(function):
    """Calls the function after DDP's own work at the end of backward(). DDP queues this work after
    its last bucket."""
    queue = torch.autograd.Variable._execution_engine.queue_callback
    queue(lambda: queue(function))
