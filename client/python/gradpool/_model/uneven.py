"""torch's Join, for models whose gradients the service averages.

A rank that has left the loop continues with buckets of zeros from DistributedDataParallel. These
buckets are pushed like all others (Y70). If a use of Join would result in wrong values, the
constructor of Join raises an error, on every rank at the same call."""
import functools
import weakref

from torch.distributed.algorithms.join import Join

from ..errors import mismatch

_watched = weakref.WeakKeyDictionary()      # model -> the arguments of watch()


def watch(model, steps, has_backup):
    """Makes Join check this model.

    steps       whether lanes do the optimizer's steps
    has_backup  whether the job has backup workers"""
    _watched[model] = steps, has_backup


def _is_ours(model):
    """Returns whether the model is attached, or uses a process group of this package."""
    group = getattr(model, 'process_group', None)
    return model in _watched or getattr(group, 'getBackendName', str)() == 'gradpool'


def _check(steps, has_backup, divide_by_initial_world_size=True, **_):
    if steps:
        raise mismatch('torch.distributed Join with a model of attach(optimizer=): lanes step with '
                       "rank 0's settings, and rank 0 may have left the loop. Attach the model "
                       'without the optimizer, or give every rank as many batches')
    if has_backup:
        raise mismatch('torch.distributed Join with a model of attach(backup=): a rank that has '
                       'left the loop would end no round. Write the loop over '
                       'attachment.batches(), which ends after the same round on every rank')
    if not divide_by_initial_world_size:
        raise mismatch('torch.distributed Join with divide_by_initial_world_size=False: the '
                       'service divides by the number of all ranks. Leave the option out')


_of_torch = Join.__init__


@functools.wraps(_of_torch)
def _init(self, joinables, enable=True, *rest, **options):
    for model in joinables if enable else ():
        if _is_ours(model):
            _check(*_watched.get(model, (False, False)), **options)
    _of_torch(self, joinables, enable, *rest, **options)


def offer():
    """Replaces the constructor of Join by one that checks models of this package."""
    Join.__init__ = _init
