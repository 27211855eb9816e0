"""The gradients of a plain module in a step. All ranks push their gradients at the end of
backward(), and each .grad becomes the mean over the samples of the step."""
import functools
import weakref

import torch

from .._process import interrupts
from .._tensors.full import names_of_sparse
from ..errors import mismatch

interrupts.offer()
_QUEUE = torch.autograd.Variable._execution_engine.queue_callback
_LOOK_MS = 100      # interval of checks for a postponed Ctrl-C


def parameters_of(model):
    """Returns {name: parameter} of the parameters with a gradient. Raises Mismatch for a model that
    cannot be trained by a changing set of workers."""
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        raise mismatch('Run() of a DistributedDataParallel model, whose process group is fixed: '
                       'give the plain module, model.module')
    for name, part in model.named_modules():
        if isinstance(part, torch.nn.SyncBatchNorm):
            raise mismatch(f"Run() of a model with SyncBatchNorm '{name}', which needs a fixed "
                           'process group: use BatchNorm')
    for name in names_of_sparse(model):
        raise mismatch(f"Run(): parameter '{name}' has sparse gradients, which cannot be weighed; "
                       'set sparse=False')
    found = {name: one for name, one in model.named_parameters() if one.requires_grad}
    for name, one in found.items():
        if one.dtype is not torch.float32 or not one.is_cpu:
            raise mismatch(f"Run(): parameter '{name}' is {one.dtype} on {one.device}, expected "
                           'torch.float32 on cpu; call model.float().cpu()')
    if not found:
        raise mismatch('Run() of a model without a parameter that requires a gradient; set '
                       'requires_grad')
    return found


def batch_norm_of(model):
    """Returns the name of the first part that computes statistics over a batch, or None."""
    kind = torch.nn.modules.batchnorm._BatchNorm
    return next((name or type(part).__name__ for name, part in model.named_modules()
                 if isinstance(part, kind)), None)


def check_averaged(parameters, model, optimizer, advice):
    """Raises Mismatch if the model or the optimizer has a parameter that requires a gradient and is
    not in `parameters` ({name: parameter}): each worker would train its own copy of this
    parameter."""
    averaged = set(map(id, parameters.values()))
    named = [(f"'{name}'", one) for name, one in model.named_parameters()]
    named += [(f'parameter {i} in group {group} of the optimizer', one)
              for group, members in enumerate(getattr(optimizer, 'param_groups', ()))
              for i, one in enumerate(members['params'])]
    for name, one in named:
        if one.requires_grad and id(one) not in averaged:
            raise mismatch(f'{name} is trained, and not averaged over the workers of Run; {advice}')


class Gradients:
    """Averages the gradients of `parameters` ({name: parameter}) in each step.

      check    function, called at the end of each backward(); may raise an error
      failure  the first error of an exchange; later steps raise it again
      is_open, is_pushed  whether a step has begun, and whether backward() has run in the step"""

    def __init__(self, job, parameters, tensors, timeout_ms, check):
        self._job, self._timeout_ms, self._check_model = job, timeout_ms, check
        self._parameters, self._tensors = parameters, tensors
        self.failure, self.is_open, self.is_pushed, self._is_queued = None, False, False, False
        mine = weakref.ref(self)
        self._hooks = [one.register_hook(functools.partial(_arrive, mine))
                       for one in parameters.values()]

    def close(self):
        for hook in self._hooks:
            hook.remove()

    def arrive(self):
        """Called for each gradient, before the gradient is in .grad."""
        if not self._is_queued:
            self._is_queued = True
            _QUEUE(self._finish)

    @interrupts.put_off
    def _finish(self):
        """Called at the end of backward()."""
        self._is_queued = False
        try:
            self._check()
            self._average([one.grad for one in self._parameters.values()])
        except BaseException as error:
            self.failure = self.failure or error
            raise

    def _check(self):
        if self.failure is not None:
            raise self.failure
        if not self.is_open:
            raise mismatch('backward() outside of a step of Run: call backward() in the loop over '
                           'the steps, or on a copy of the model')
        if self.is_pushed:
            raise mismatch('backward() a second time in one step of Run: add the losses, and call '
                           'backward() once in each step')
        self._check_model()
        lacking = [name for name, one in self._parameters.items() if one.grad is None]
        if lacking:
            raise mismatch(f"backward() gave no gradient to '{lacking[0]}' ({len(lacking)} such "
                           'parameters): use each parameter in each step, or set requires_grad to '
                           'False before Run()')

    def _average(self, gradients):
        """Replaces each gradient by the mean."""
        flat = [one if one.is_contiguous() else one.contiguous() for one in gradients]
        self.exchange(flat)
        for gradient, mean in zip(gradients, flat):
            if mean is not gradient:
                gradient.copy_(mean)

    def exchange(self, values):
        """Pushes values of all parameters, and waits for their means in the same memory."""
        self.is_pushed = True
        request = self._job.push_pull_group(
            [(tensor, one, None) for tensor, one in zip(self._tensors, values)])
        left_ms = self._timeout_ms
        while left_ms > _LOOK_MS and not request.done(_LOOK_MS):
            left_ms -= _LOOK_MS
            interrupts.let_through()
        request.wait(_LOOK_MS)

    def pass_on(self):
        """Takes part in the exchange of a step without a gradient, and drops the means."""
        self.exchange([torch.zeros(one.numel()) for one in self._parameters.values()])


def _arrive(gradients, _):
    gradients = gradients()
    if gradients is not None:
        gradients.arrive()
