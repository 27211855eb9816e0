"""The part of DDP's communication hook for attach(model, optimizer=...): lanes store parameters and
moments and do the optimizer's steps.

For each bucket the hook sends one update for each optimizer group with parameters in the bucket,
with the present settings of the group. The lane writes the new parameters to the memory of the
model. A parameter's gradient is ready only after backward() has used the parameter for the last
time, so the lane may write at this time. The step has ended when backward() returns, and
optimizer.step() only checks that lanes have done the step (Y16). If the script has written
parameters or loaded moments, lanes receive these before the next step (modules written and
kept)."""
import operator
import weakref

import torch

from .._model.buckets import pieces_of
from .._model.unused import Unused
from .._tensors.cuda import crossing_of
from ..errors import mismatch, Mismatch
from .kept import in_words, Kept
from .untouched import Untouched
from .written import Written

_KINDS = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW
# Options that change the arithmetic; no rule of the service has such an option. `foreach` and
# `fused` change only the order of work.
_NOT_OFFERED = 'amsgrad', 'maximize', 'differentiable', 'capturable'
_EMBEDDINGS = torch.nn.Embedding, torch.nn.EmbeddingBag
_REQUIRES_GRAD = operator.attrgetter('requires_grad')
# Attributes that a scheduler sets on step() when the scheduler counts the calls of step(): in torch
# 1, and in torch 2.
_MARKS = '_with_counter', '_wrapped_by_lr_sched'
# Runs the hooks of register_step_pre_hook() and similar functions. PyTorch 1 has no such hooks.
_HOOKED = getattr(torch.optim.Optimizer, 'profile_hook_step', lambda step: step)
_NUMBERS = 'lr', 'weight_decay', 'momentum', 'dampening', 'eps'


def _rule_of(kind, group):
    """Returns the name of the rule. Raises Mismatch if the group has an option that no rule has."""
    for option in _NOT_OFFERED:
        if group.get(option):
            raise mismatch(f'{kind.__name__} with {option}={group[option]!r}: the service has no '
                           'such rule; leave the option out, or attach without the optimizer')
    if kind is not torch.optim.SGD:
        return kind.__name__.lower()
    if not group['momentum']:
        return 'sgd'
    return 'nesterov' if group['nesterov'] else 'momentum'


def settings_of(group):
    settings = {name: float(group[name]) for name in _NUMBERS if name in group}
    if 'betas' in group:
        settings['betas'] = tuple(map(float, group['betas']))
    return settings


def _check_parts(module):
    for name, part in module.named_modules():
        if isinstance(part, _EMBEDDINGS) and part.max_norm is not None:
            raise mismatch(f"'{name}' scales rows in forward() (max_norm), other rows on each "
                           'rank, so parameters would differ: scale all rows after step(), on '
                           'every rank')
        if getattr(part, 'sparse', False) is True:
            raise mismatch(f"'{name}' has sparse gradients, the service's rules need dense "
                           'ones: set sparse=False')


class Stepping:
    """An optimizer whose steps are done by lanes.

    parameters  {name: parameter} of the optimizer; the hook gets their gradients
    frozen      {name: parameter} with a gradient on no rank; the optimizer may contain them"""

    def __init__(self, optimizer, module, parameters, frozen):
        self._optimizer, self._kind = optimizer, type(optimizer)
        if self._kind not in _KINDS:
            raise mismatch(f'optimizer is a {self._kind.__module__}.{self._kind.__qualname__}, '
                           'expected torch.optim.SGD, Adam or AdamW')
        _check_parts(module)
        groups = optimizer.param_groups
        self._rules = [_rule_of(self._kind, group) for group in groups]
        self._group_of = {id(parameter): i for i, group in enumerate(groups)
                          for parameter in group['params']}
        self._check_same(parameters, frozen)
        self._parameters = parameters
        self._tensors = {}      # id of a parameter -> its tensor
        self._pushed = set()    # indices of buckets that were sent since the last step()
        self._known = self._members()
        self._written = Written({id(one): name for name, one in parameters.items()})
        self._untouched = Untouched()
        self._unused = Unused(parameters, self._group_here, self._rule_here)
        self._kept, self._had_moments = Kept(optimizer, self._rule_here), False

    def _rule_here(self, parameter):
        return self._rules[self._group_of[id(parameter)]]

    def _group_here(self, parameter):
        return self._optimizer.param_groups[self._group_of[id(parameter)]]

    def _check_same(self, parameters, frozen):
        mine = {id(parameter) for parameter in parameters.values()}
        lacking = [name for name, one in parameters.items() if id(one) not in self._group_of]
        for name, one in parameters.items():
            if not one.is_contiguous():
                raise mismatch(f"parameter '{name}' is not contiguous; lanes step contiguous ones: "
                               'leave its memory format as it is, or attach without the optimizer')
        if lacking:
            raise mismatch(f"the optimizer lacks the model's {', '.join(lacking[:5])}: give the "
                           'optimizer all parameters, or set requires_grad to False for those that '
                           'do not change')
        # torch skips parameters without gradients, too
        mine |= {id(one) for one in frozen.values() if one.grad is None}
        foreign = len(self._group_of.keys() - mine)
        if foreign:
            raise mismatch(f'the optimizer has {foreign} parameters without gradients of this '
                           'model: give them another optimizer, or attach without the optimizer')

    def declare(self, job, prefix, wire):
        """Declares the parameters. All ranks and the lanes receive the parameters of rank 0. The
        lanes also receive rank 0's moments, if there are any."""
        for rule in dict.fromkeys(self._rules):
            named = {name: one for name, one in self._parameters.items()
                     if self._rules[self._group_of[id(one)]] == rule}
            made = job.declare_all({prefix + name: one.numel() for name, one in named.items()},
                                   # without trainable parameters nothing is declared
                                   rule=rule, wire=wire) if named else ()
            self._tensors.update((id(one), tensor) for one, tensor in zip(named.values(), made))
        tensors = {one: self._tensors[id(one)] for one in self._parameters.values()}
        if not self._kept.begin(job, tensors, self._sharing(job, prefix)):
            self._broadcast(job)
        self._written.note(None, list(tensors))

    def _sharing(self, job, prefix):
        """Returns the function that gives all ranks the step counts of rank 0."""
        steps = job.declare(f'{prefix}(steps)', len(self._parameters), 'int64')
        return lambda counts: job.broadcast(steps, counts).wait()

    def _broadcast(self, job):
        values = [one.detach() for one in self._parameters.values()]
        crossing = crossing_of(job, *values)
        places = list(map(crossing.out if job.rank == 0 else crossing.back, values))
        request = crossing.begin(lambda: Requests([
            job.broadcast(self._tensors[id(one)], place)
            for one, place in zip(self._parameters.values(), places)]))
        request.wait()
        crossing.land(lambda: None)

    def restore(self, job, path):
        """Restores a snapshot: lanes receive its state, and the model receives its parameters."""
        values = {self._tensors[id(one)]: one.detach() for one in self._parameters.values()}
        crossing = crossing_of(job, *values.values())
        job.restore(path, {tensor: crossing.back(one) for tensor, one in values.items()})
        crossing.land(lambda: None)
        self._kept.note_restored()
        self._written.note(None, list(self._parameters.values()))

    def keep(self, place):
        """Sets the Place. The Place is closed when the script has dropped the optimizer, or has
        attached another model with this optimizer. The moments exist as long as the Place, even
        after the script has dropped the model (Y84)."""
        self._kept.place = place
        weakref.finalize(self._optimizer, place.drop).atexit = False

    def replace_step(self, check):
        """Replaces optimizer.step(). The new step() calls check() and raises an error if no
        backward() came before. The new step() also counts its calls, as schedulers require, and
        runs the hooks of a step."""
        def end(optimizer, closure=None):
            loss = None
            if closure is not None:
                with torch.enable_grad():
                    loss = closure()
            check()
            self._end_step()
            return loss
        hooked = _HOOKED(end)

        def step(*arguments, **options):
            return hooked(self._optimizer, *arguments, **options)
        for mark in _MARKS:
            setattr(step, mark, True)
        self._optimizer.step = step
        self._kept.replace_methods(check)

    def has_step_left_out(self):
        """Returns whether lanes have done a step in a backward() without a later step() of the
        script."""
        return bool(self._pushed)

    def _end_step(self):
        if not self._pushed:
            self._check_trainable()
            self._written.is_so()   # raises an error for parameters that cannot be stepped
            raise mismatch('step() was called, but no backward() has sent gradients since the '
                           'last step(); call backward() first')
        self._pushed.clear()
        without = self._untouched.without
        if not self._untouched.are_so():
            raise mismatch('gradients were changed between backward() and step(), as by '
                           'clip_grad_norm_() or a GradScaler: lanes have stepped with the former '
                           'gradients. Leave the change out, or attach without the optimizer')
        self._unused.check(without, self._had_moments)
        self._optimizer._step_count = getattr(self._optimizer, '_step_count', 0) + 1
        self._optimizer._opt_called = True

    def start(self, job, bucket):
        """Starts the updates of a torch.distributed.GradBucket, with the interface of
        bucket_of()."""
        if bucket.index() in self._pushed:
            raise mismatch('backward() a second time before step() of the attached optimizer, and '
                           'lanes have made a step in the first one: call step() after each '
                           'backward(), put forward() and backward() of all passes but the last '
                           'under model.no_sync(), or attach without the optimizer if the script '
                           'leaves steps out')
        if not self._pushed:
            self._begin_step(bucket)
        self._pushed.add(bucket.index())
        buffer = bucket.buffer()
        crossing = crossing_of(job, buffer)
        gradients = pieces_of(bucket, crossing.out(buffer))
        items = {}      # index of a group -> its items in the bucket
        parameters, index = bucket.parameters(), bucket.index()
        self._untouched.expect(parameters)
        for parameter, gradient in zip(parameters, gradients):
            items.setdefault(self._group_of[id(parameter)], []).append(
                (self._tensors[id(parameter)], gradient, crossing.back(parameter.detach())))
        groups = [(items[i], self._settings(i)) for i in sorted(items)]
        request = crossing.begin(lambda: Requests([
            job.update_group(of_group, **settings) for of_group, settings in groups]))

        def landed():
            self._written.note(index, parameters)
            return buffer
        return request, lambda: crossing.land(landed)

    def _begin_step(self, bucket):
        """Called when all ranks have begun the next backward(): then the scripts have made all
        their changes."""
        self._check_trainable()
        if self._members() != self._known:
            raise mismatch("the optimizer's groups have other parameters than at attach(): give it "
                           'all of them before')
        self._kept.check_state()
        if self._written.is_so() or self._kept.is_loaded:
            self._take_changes(bucket)
        self._had_moments = self._kept.has_stepped
        self._kept.note_step()
        self._written.forget()

    def _take_changes(self, bucket):
        """Sends to the lanes the parameters and moments that the script has changed."""
        self._kept.take_over(bucket.parameters())

    def _check_trainable(self):
        if not all(map(_REQUIRES_GRAD, self._parameters.values())):
            frozen = next(name for name, one in self._parameters.items() if not one.requires_grad)
            raise mismatch(f"parameter '{frozen}' was frozen after attach(); lanes would "
                           'step it with gradients of zero: set requires_grad to False before '
                           'DistributedDataParallel() and attach()')

    def _members(self):
        return [list(map(id, group['params'])) for group in self._optimizer.param_groups]

    def _settings(self, index):
        group = self._optimizer.param_groups[index]
        rule = _rule_of(self._kind, group)
        if rule != self._rules[index]:
            raise mismatch(f'group {index} of the optimizer was attached with the rule '
                           f"'{self._rules[index]}', but its settings now need '{rule}': make "
                           'schedulers that change the momentum (OneCycleLR, CyclicLR), and set '
                           'momentum and nesterov, before attach()')
        return settings_of(group)


class Requests:
    """Several requests that one wait() ends together."""

    def __init__(self, requests):
        self._requests = requests

    def done(self, timeout_ms=0):
        return all(request.done(timeout_ms) for request in self._requests)

    def wait(self, timeout_ms=0):
        try:
            for request in self._requests:
                request.wait(timeout_ms)
        except Mismatch as error:
            raise in_words(error) from error

    def mute(self):
        for request in self._requests:
            request.mute()
