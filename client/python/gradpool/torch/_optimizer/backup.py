"""Gradients of an optimizer with backup workers: each round closes before its slowest ranks arrive.

    backward()     a hook pushes each gradient to a job with backup workers
    synchronize()  pushes zeros for the other parameters, ends the round of this rank, and copies
                   the mean of the round to .grad
    step()         steps with this mean, and with the mean of each later round that this rank has
                   missed, in order

The optimizer has this job for itself, because a round ends for all tensors of a job at once. All
other calls of Horovod's door use the door's own job, whose rounds have all ranks."""
import errno
import weakref

import torch

from ..._model.attached import Place
from ..._model.residuals import Residuals
from ..._steps.backup_means import BackupMeans
from ..._tensors.contents import Contents
from ...errors import GradpoolError, mismatch, Timeout
from .._door import door
from .backup_rounds import Limit, Rounds
from .left import Left
from .moments import Moments
from .reducer import take_over

# Gradients are pushed together until they have this size.
_TOGETHER_BYTES = 1 << 20


class _Gradient:
    """The gradient of one parameter. `passes`: number of backward() that have added to the gradient
    since the last round. `sent`, `version`: the pushed gradient, and its version at that time."""
    __slots__ = ('name', 'parameter', 'passes', 'sent', 'version')

    def __init__(self, name, parameter):
        self.name, self.parameter = name, parameter
        self.passes, self.sent, self.version = 0, None, None

    def is_altered(self):
        return self.sent is not None and (self.parameter.grad is not self.sent or
                                          self.sent._version != self.version)


def _hook_of(owner, member):
    def accumulated(*_):
        gradients = owner()
        if gradients is not None:
            gradients.add(member)
    return accumulated


class BackupGradients(BackupMeans):
    """The gradients of an optimizer.

    named        {name: parameter}
    passes       backward_passes_per_step
    step         function that makes one step with the means in .grad; None: the optimizer's step
    is_stepping  whether this function runs
    rounds       the rounds of this rank"""

    def __init__(self, optimizer, named, backup, passes, step):
        # an empty module, because the hook refuses sparse gradients
        super().__init__(torch.nn.Module(), named)
        self._optimizer, self._door = weakref.ref(optimizer), door()
        self._passes, self._step, self.is_stepping = passes, step, False
        self._members = {id(one): _Gradient(name, one) for name, one in named.items()}
        self._left, self._contents, self._noted = Left(), Contents(), None
        self._moments = Moments()
        self._ready, self._ready_bytes, self._requests = [], 0, []
        # whether gradients were pushed; whether a round has ended in this body; whether .grad has
        # the mean of a round without a step
        self._is_busy = self._has_ended = self._is_landed = False
        self._failure = self._settings = None
        self._limit, self.residuals = Limit(self._door), Residuals(None, {}, self._door.rank)
        job = self._door.join_beside(backup)
        self.rounds = Rounds(job, None, self, self._limit, backup, self._step_once)
        place = Place(job, None, None)
        self.declare(job, '', None)
        place.tensors = job.tensors()
        weakref.finalize(self, place.drop).atexit = False
        take_over(self, named.values())
        self._nodes = [self._watch(one) for one in self._members.values()]

    def _watch(self, member):
        """Returns the autograd node that accumulates the gradient, which torch would free, and its
        hook."""
        parameter = member.parameter
        with torch.enable_grad():
            node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
        return node, node.register_hook(_hook_of(weakref.ref(self), member))

    def lose(self, members):
        raise mismatch(f"DistributedOptimizer() of '{members[0].name}', which another optimizer "
                       'with backup= has: give each parameter to one DistributedOptimizer')

    def is_busy(self):
        return self._is_busy

    def renew(self):
        """Does nothing: a parameter with another shape is refused."""

    def set_passes(self, passes):
        self._passes = passes

    # ---- backward() ----

    def add(self, member):
        """Called by the hook after each accumulation of the gradient."""
        self._check()
        if self._has_ended:
            raise mismatch('backward() a second time in one body of a loop over batches(), after '
                           'step() or synchronize(): a body has one round. For several backward() '
                           'before step() give backward_passes_per_step')
        member.passes += 1
        if member.passes > self._passes:
            raise mismatch(f"'{member.name}': backward() ran more than {self._passes} times before "
                           'step(); say so in backward_passes_per_step')
        if member.passes == self._passes:
            self._left.add(member.parameter.grad)
            self._push(member, member.parameter.grad)

    def _check(self):
        if self._failure is not None:
            raise self._failure
        if not self.is_in_body:
            raise mismatch('an optimizer with backup= outside of a loop over optimizer.batches(), '
                           'and only that loop ends after the same round on every rank. Write '
                           '"for batch in optimizer.batches(loader, rounds=...):"')

    def _push(self, member, gradient):
        if gradient.is_sparse:
            raise mismatch(f"parameter '{member.name}' has a sparse gradient, and jobs with backup "
                           'workers take dense ones: set sparse=False, or leave backup out')
        self._is_busy = True
        member.sent, member.version = gradient, gradient._version
        self._ready.append(member)
        self._ready_bytes += gradient.numel() * gradient.element_size()
        if self._ready_bytes >= _TOGETHER_BYTES:
            self._push_ready()

    def _push_ready(self):
        members, self._ready, self._ready_bytes = self._ready, [], 0
        if members:
            self._requests.append(self._job.push_pull_group(
                [(self._tensors[id(one.parameter)], one.sent.detach().contiguous(),
                  self._means[id(one.parameter)]) for one in members]))

    # ---- the end of a round ----

    def synchronize(self, is_last_look):
        """Ends the round of this rank. `is_last_look`: no code of the script runs before the
        step."""
        if self._is_landed:
            return
        if not self._is_busy and not any(one.passes for one in self._members.values()):
            self._check()
            raise mismatch('step() or synchronize() without backward() in this body of a loop over '
                           'optimizer.batches(). Call backward() before, or leave the body with '
                           'continue')
        self._check_parameters()
        self._check_altered()
        try:
            self._end_round()
            for request in self._requests:
                request.wait()
        except BaseException as error:
            self._fail(error)
            raise
        self._land()
        if not is_last_look:
            self._noted = [one.grad for one in self._parameters]
            self._contents.note(self._noted)

    def _check_altered(self):
        is_as_left = self._left.is_so()
        names = [one.name for one in self._members.values() if one.is_altered()]
        if names or not is_as_left:
            which = f"the gradient of '{names[0]}' was" if names else 'gradients were'
            self._fail(mismatch(f'{which} changed after backward() and before step(), on the way '
                                'to the other ranks. Clip and scale in the function step= of '
                                'DistributedOptimizer(), which has the mean of each round'))
            raise self._failure

    def _end_round(self):
        self._push_others()
        try:
            self.rounds.end(lambda: None)
        except Timeout as error:
            raise self._limit.told(error) from error

    def _check_parameters(self):
        if {id(one) for group in self._optimizer().param_groups for one in group['params']
                if one.requires_grad} != set(self._members):
            raise mismatch('parameters of the optimizer were added, removed or frozen behind '
                           'DistributedOptimizer(backup=), and a round has the same parameters on '
                           'all ranks. Do this before, and make another DistributedOptimizer')

    def _push_others(self):
        """Pushes incomplete gradients, and zeros for parameters without one, because another rank
        may have a gradient."""
        for member in self._members.values():
            if member.sent is None:
                parameter = member.parameter
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter, requires_grad=False)
                self._push(member, parameter.grad)
        self._push_ready()

    def _fail(self, error):
        """Stores the first error after which the state of the round is unknown."""
        if not isinstance(error, Exception):
            error = GradpoolError(errno.EINTR, f'{type(error).__name__} at the end of a round with '
                                  'backup workers; end the script, or make another '
                                  'DistributedOptimizer')
        self._failure = error

    def _land(self):
        with torch.no_grad():
            for member in self._members.values():
                member.sent.copy_(self._means[id(member.parameter)])
                member.passes, member.sent, member.version = 0, None, None
        self._requests.clear()
        self._is_busy, self._has_ended, self._is_landed = False, self.is_in_body, True

    # ---- the loop over batches(), and the steps ----

    def step(self):
        """Makes the steps of this rank's round, and of all missed rounds."""
        self._check()
        self.synchronize(is_last_look=True)
        self.check_settings()
        self.rounds.catch_up()

    def settle(self):
        self._door.check_body('optimizer.settle()')
        if self._failure is not None:
            raise self._failure
        self.rounds.settle()

    def _step_once(self):
        self.is_stepping, self._door.is_in_body = True, False
        try:
            (self._step or self._optimizer()._step_alone)()
        finally:
            self.is_stepping, self._door.is_in_body = False, self.is_in_body

    def begin_body(self):
        self.is_in_body = self._door.is_in_body = True
        self._has_ended = False

    def end_body(self):
        self.is_in_body = self._door.is_in_body = False

    def end_step(self):
        """Ends a round for which the script has not called step()."""
        passes = max(one.passes for one in self._members.values())
        if passes and not self._is_busy:
            raise mismatch(f'the body of a loop over batches() ended after {passes} of '
                           f'{self._passes} backward(). A rank may get the mean of a missed round '
                           'behind each body: put all backward() of a step in one body')
        if self._is_busy:
            self.synchronize(is_last_look=True)
        noted, self._noted, self._is_landed = self._noted, None, False
        if noted is not None and not self._contents.are([one.grad for one in self._parameters]):
            self._fail(mismatch('gradients were changed between synchronize() and step(), but a '
                                'rank that misses rounds gets their means without this change. '
                                'Clip and scale in the function step= of DistributedOptimizer()'))
            raise self._failure

    def note_settings(self):
        """Stores parameters, settings and state after a step and before a loop."""
        self._written.note(None, self._parameters)
        self._moments.note(self._optimizer())
        self._settings = self._settings_of()

    def check_settings(self):
        """Raises Mismatch if the body has changed parameters, settings or the state."""
        if self._written.is_so():
            what, advice = 'parameters', 'Write parameters between loops, behind settle()'
        elif self._settings != self._settings_of():
            what, advice = 'settings of the optimizer', 'Call scheduler.step() in the function ' \
                'step= of DistributedOptimizer()'
        elif not self._moments.are_so(self._optimizer()):
            what, advice = 'the state of the optimizer', 'Load or change a state between loops, ' \
                'behind settle()'
        else:
            return
        self._fail(mismatch(f'the body of a loop over optimizer.batches() has changed {what}, but '
                            f'a rank that misses rounds runs the body less often. {advice}'))
        raise self._failure

    def _settings_of(self):
        return repr([[(name, value) for name, value in group.items() if name != 'params']
                     for group in self._optimizer().param_groups])
