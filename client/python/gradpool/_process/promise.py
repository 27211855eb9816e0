"""A Future whose failure is also an error for torch's C++ code."""
import torch


class Promise:
    """A Future that any thread completes once, with a result or an error.

    set_exception() of torch 1.13 stores the exception as the value. Only Python raises this value;
    DDP's C++ would use the value as a tensor. An exception in a callback is an error in both
    languages: a RuntimeError with class and text of the exception. So callers get the Future of a
    callback (Y3).

    tensors  tensors on the devices of the result"""

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
