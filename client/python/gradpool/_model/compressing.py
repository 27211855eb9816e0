"""The part of DDP's communication hook for attach(model, compression=...). Sends a code for each
parameter that is large enough, and decodes the received codes. The result replaces the gradient in
the bucket (Y17). Gradients on a GPU are encoded and decoded on the host, in the thread that waits
for the copy."""
import numpy

from .._steps.stepping import Requests
from .._tensors.cuda import crossing_of
from ..codecs import Feedback
from .buckets import pieces_of


class Compressing:
    """The gradients of a model's parameters, {name: parameter}, sent as codes."""

    def __init__(self, codec, parameters):
        self.feedback, self._codec = Feedback(codec), codec
        self._parameters = parameters
        self._tensors = {}      # name of a parameter -> its tensor
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
            self._tensors.update(zip(named, made))

    def start(self, job, bucket):
        """Starts the means of all gradients in a torch.distributed.GradBucket. The objects that
        bucket_of() returns have the same method."""
        buffer = bucket.buffer()
        crossing = crossing_of(job, buffer)
        host = crossing.out(buffer)
        gradients = {self._names[id(parameter)]: gradient for parameter, gradient in
                     zip(bucket.parameters(), pieces_of(bucket, host))}
        found = {}      # name -> memory for the received codes

        def land():
            for name, codes in found.items():
                self.feedback.decode(name, codes, gradients[name], self._tensors[name].workers)
            crossing.bring([(buffer, host)])
            return crossing.land(lambda: buffer)
        return crossing.begin(lambda: self._push(job, gradients, found)), land

    def _push(self, job, gradients, found):
        whole, coded = [], []
        for name, gradient in gradients.items():
            tensor = self._tensors[name]
            if self._codec.takes(gradient.numel()):
                code = self.feedback.encode(name, gradient)
                found[name] = self._room(code, tensor.workers)
                coded.append((tensor, code, found[name]))
            else:
                whole.append((tensor, gradient, None))
        requests = [job.push_pull_group(whole)] if whole else []
        if coded:
            requests.append(job.push_pull_group(coded, self._codec.operation))
        return Requests(requests)

    def _room(self, code, workers):
        blocks = workers if self._codec.operation == 'gather' else 1
        return numpy.empty(blocks * code.size, code.dtype)
