"""Detects gradients that a script has changed after backward(). Such a change by clip_grad_value_()
does not change the version of a tensor, because the function writes through `.data`."""
import torch

from ..._tensors.contents import Contents

_QUEUE = torch.autograd.Variable._execution_engine.queue_callback


class Left:
    """Values of gradients in the memory of the host, stored from each backward() to the next
    step."""

    def __init__(self):
        self._new = []          # gradients of the backward() in progress
        self._noted = []        # (gradients, their Contents) of this step
        self._spare = []        # Contents of former steps, whose memory is used again

    def add(self, gradient):
        """Called in backward() when the gradient is complete."""
        if not self._new:
            _QUEUE(self._note)
        self._new.append(gradient)

    def _note(self):
        gradients, self._new = self._new, []
        gradients = [one for one in gradients if one is not None and one.is_cpu
                     and one.layout is torch.strided]
        contents = self._spare.pop(0) if self._spare else Contents()
        contents.note(gradients)
        self._noted.append((gradients, contents))

    def is_so(self):
        """Returns whether the gradients are unchanged. Called once in each step."""
        noted, self._noted, self._new = self._noted, [], []
        answers = [contents.are(gradients) for gradients, contents in noted]
        self._spare = [contents for _, contents in noted]
        return all(answers)
