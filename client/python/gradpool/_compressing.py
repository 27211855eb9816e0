"""What attach(model, compression=...) adds to the hook: of each parameter that is large enough a
code goes out, and what comes back is decoded over the gradient in the bucket (Y17)."""
import numpy

from ._stepping import Requests
from .codecs import Feedback


class Compressing:
    """The gradients of a model's parameters, {name: parameter}, as a codec's."""

    def __init__(self, codec, parameters):
        self.feedback, self._codec = Feedback(codec), codec
        self._parameters = parameters
        self._tensors = {}      # id of a parameter -> its tensor
        self._names = {id(one): name for name, one in parameters.items()}

    def declare(self, job, prefix, wire):
        coded = {name: self._codec.words(one.numel()) for name, one in self._parameters.items()
                 if self._codec.takes(one.numel())}
        whole = {name: one.numel() for name, one in self._parameters.items() if name not in coded}
        wire_of_codes = wire if self._codec.dtype == 'float32' else None
        for named, dtype, travels in ((coded, self._codec.dtype, wire_of_codes),
                                      (whole, 'float32', wire)):
            made = job.declare_all({prefix + name: count for name, count in named.items()}, dtype,
                                   wire=travels)
            self._tensors.update((id(self._parameters[name]), tensor)
                                 for name, tensor in zip(named, made))

    def start(self, job, bucket):
        """Starts the means over a torch.distributed.GradBucket; returns what waits for them."""
        whole, coded, codes = [], [], []
        for parameter, gradient in zip(bucket.parameters(), bucket.gradients()):
            tensor, name = self._tensors[id(parameter)], self._names[id(parameter)]
            if self._codec.takes(gradient.numel()):
                code = self.feedback.encode(name, gradient)
                coded.append((tensor, code, self._room(code, tensor.workers)))
                codes.append((name, gradient))
            else:
                whole.append((tensor, gradient, None))
        requests = [job.push_pull_group(whole)] if whole else []
        if coded:
            requests.append(job.push_pull_group(coded, self._codec.operation))
        return _Coded(requests, lambda: self._decode(codes, coded))

    def _room(self, code, workers):
        blocks = workers if self._codec.operation == 'gather' else 1
        return numpy.empty(blocks * code.size, code.dtype)

    def _decode(self, codes, coded):
        for (name, gradient), (tensor, _, found) in zip(codes, coded):
            self.feedback.decode(name, found, gradient, tensor.workers)


class _Coded(Requests):
    """Requests whose codes are decoded by who waits."""

    def __init__(self, requests, decode):
        super().__init__(requests)
        self._decode = decode

    def wait(self, timeout_ms=0):
        super().wait(timeout_ms)
        self._decode()
