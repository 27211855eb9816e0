"""DistributedOptimizer(backup=): the calls of the script, and their checks."""
import torch

from ..._model.backup_rounds import backup_of
from ..._native.backup import Backup, INTERRUPT
from ...errors import disagreement, mismatch
from .._operations.objects import gather_objects
from ..process_sets import global_process_set
from .backup import BackupGradients
from .optimizer import become_distributed, Distributed

# Why an option of DistributedOptimizer() cannot be combined with backup=.
_REASONS = {
    'compression': 'a rank cannot send the rest of a dropped gradient',
    'op': 'the number of gradients differs from round to round, so there is only Average',
    'gradient_predivide_factor': 'the number of gradients differs from round to round',
    'sparse_as_dense': 'gradients must be dense. Set sparse=False in the embedding',
    'groups': 'a round ends for all gradients together',
    'process_set': 'a round has the fastest of all ranks'}


class WithBackup(Distributed):
    """Base class of optimizers whose rounds close before their slowest ranks arrive."""
    _has_backup = True

    def batches(self, loader, rounds):
        """Yields batches of the loader until the job has made `rounds` further rounds. The loop
        ends after the same round on every rank. When the loader ends, batches() calls set_epoch()
        of its sampler, and begins the loader again. Each body calls backward(), and may call
        step()."""
        return self._gradients().rounds.batches(loader, rounds)

    def settle(self):
        """Returns when all ranks have called this method and have the parameters of the same
        round. Call settle() after a loop over batches(), and before validation. Mismatch: ranks
        have different rounds or parameters; the text names the ranks."""
        self._gradients().settle()

    def tell_loss(self, loss):
        """Sets the loss of this rank's batch, before step(). The rule "adasync" needs losses."""
        self._gradients().rounds.loss = float(loss)

    @property
    def round(self):
        """The newest round whose parameters this rank has."""
        return self._gradients().rounds.number

    @property
    def missed(self):
        """The number of rounds without a gradient of this rank."""
        return self._gradients().rounds.missed

    @property
    def dropped(self):
        """The number of this rank's gradients that were dropped."""
        return self._gradients().rounds.dropped

    def synchronize(self):
        """Ends the round of this rank: .grad has the mean of the round. Clip and scale in the
        function step= of DistributedOptimizer(), because a rank also steps with the means of the
        rounds that it has missed."""
        self._gradients().synchronize(is_last_look=False)

    def step(self, closure=None):
        """Ends the round of this rank, if synchronize() was not called. Then makes one step for
        this round, and one for each missed round, in order. In the function step= this method makes
        a step with the means in .grad."""
        gradients = self._gradients()
        if gradients.is_stepping:
            return self._step_alone(closure)
        if closure is not None:
            raise mismatch('step(closure) with backup=: ranks would compute the closure in '
                           'different rounds. Call backward() and then step(), or leave backup out')
        return gradients.step()


def distribute(optimizer, named, backup, step, passes, given):
    """Makes an optimizer of a script a distributed one with backup workers.

    named  [(name, parameter)]
    given  {option of DistributedOptimizer(): whether the script has given another value}"""
    backup = _backup_of(backup, step)
    _check_options(backup, given)
    if isinstance(optimizer, Distributed) and optimizer._reducer is not None:
        raise mismatch('DistributedOptimizer(backup=) of an optimizer that is distributed already. '
                       'Give the optimizer of torch')
    mine = {id(one) for group in optimizer.param_groups for one in group['params']}
    named = {name: one for name, one in named if id(one) in mine and one.requires_grad}
    _check_parameters(named)
    _check_ranks(backup, named)
    gradients = BackupGradients(optimizer, named, backup, passes, step)
    become_distributed(optimizer, WithBackup)
    optimizer._reducer = gradients
    return optimizer


def _backup_of(backup, step):
    if backup is None:
        raise mismatch('DistributedOptimizer(step=) without backup=: the script calls the function '
                       'in its own loop. Leave step out, or give backup')
    if step is not None and not callable(step):
        raise mismatch(f'DistributedOptimizer(step={step!r}): expected a function without '
                       'arguments, which calls optimizer.step()')
    if isinstance(backup, int) and not isinstance(backup, bool):
        backup = f'static:{backup}'
    return backup if isinstance(backup, Backup) else Backup(backup)


def _check_options(backup, given):
    for name, is_given in given.items():
        if is_given:
            raise mismatch(f'DistributedOptimizer(backup=) with {name}=: {_REASONS[name]}. Leave '
                           f'{name} out, or backup')
    if backup.gradients not in (0, 1):
        raise mismatch(f'DistributedOptimizer(backup=) with gradients={backup.gradients}: steps of '
                       'a script use one gradient of each rank. Leave gradients out')
    if backup.stragglers == INTERRUPT:
        raise mismatch("DistributedOptimizer(backup=) with stragglers='interrupt': an optimizer "
                       'has no forward() that a rank could leave. Leave stragglers out, or use '
                       'gradpool.ddp.attach(model, backup=...)')
    if backup.rule == 'dbw':
        raise mismatch("DistributedOptimizer(backup='dbw'): the rule needs the learning rate of "
                       'each step, which only lanes that step have. Give another rule such as '
                       "'auto', or use gradpool.ddp.attach(model, optimizer=..., backup='dbw')")
    backup_of(backup)


def _check_parameters(named):
    if not named:
        raise mismatch('DistributedOptimizer(backup=) of an optimizer without parameters that '
                       'require gradients')
    for name, one in named.items():
        if one.dtype is not torch.float32 or not one.is_cpu:
            raise mismatch(f"DistributedOptimizer(backup=): parameter '{name}' is {one.dtype} on "
                           f'{one.device}, expected torch.float32 on the CPU. Call float() and '
                           'cpu() on the model, or leave backup out')


def _check_ranks(backup, named):
    """Raises Mismatch on all ranks if their optimizers differ."""
    mine = {'backup': f'rule {backup.rule}', **{
        f"gradient of '{name}'": f'{list(one.shape)}' for name, one in named.items()}}
    every = gather_objects(mine, 'DistributedOptimizer(backup=)', global_process_set)
    for name in dict.fromkeys(name for texts in every for name in texts):
        brought = [texts.get(name, 'nothing') for texts in every]
        if len(set(brought)) > 1:
            raise mismatch(f'DistributedOptimizer(backup=), {name}: '
                           f'{disagreement(brought, range(len(brought)))}. All ranks must give the '
                           'same parameters and rule')
