"""A Future whose failure is one to torch's own code, too."""
import torch


class Promise:
    """Kept or broken once, by any thread, and its Future is complete.

    What torch 1.13 calls set_exception() stores the exception as the value, and only Python raises
    it: DDP takes it for a tensor. What a callback raises is an error to both, a RuntimeError with
    the exception's class and text. So the Future that is given out comes from a callback (Y3).

    tensors  like those that it will hold: on whatever devices"""

    def __init__(self, tensors):
        devices = list({one.device for one in tensors if one.is_cuda})
        self._inner, self._error = torch.futures.Future(devices=devices), None
        self.future = self._inner.then(self._outcome)

    def keep(self, value):
        self._inner.set_result(value)

    def break_by(self, error):
        self._error = error
        self._inner.set_result(None)

    def _outcome(self, inner):
        if self._error is not None:
            raise self._error
        return inner.value()
