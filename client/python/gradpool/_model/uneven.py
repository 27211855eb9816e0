"""torch's Join, for models whose gradients the service averages.

A rank that has left the loop continues with buckets of zeros from DistributedDataParallel. These
are pushed like all others (Y70). If a use of Join would result in wrong values, the constructor of
Join raises an error, on every rank at the same call."""
import functools
import weakref

from torch.distributed.algorithms.join import Join

from ..errors import mismatch

_watched = weakref.WeakKeyDictionary()      # model -> whether lanes do the optimizer's steps


def watch(model, steps):
    """Makes Join check this model. `steps`: whether lanes do the optimizer's steps."""
    _watched[model] = steps


def _is_ours(model):
    """Returns whether the model is attached, or uses a process group of this package."""
    group = getattr(model, 'process_group', None)
    return model in _watched or getattr(group, 'getBackendName', str)() == 'gradpool'


def _check(steps, divide_by_initial_world_size=True, **_):
    if steps:
        raise mismatch('torch.distributed Join with a model of attach(optimizer=): lanes step with '
                       "rank 0's settings, and rank 0 may have left the loop. Attach the model "
                       'without the optimizer, or give every rank as many batches')
    if not divide_by_initial_world_size:
        raise mismatch('torch.distributed Join with divide_by_initial_world_size=False: the '
                       'service divides by the number of all ranks. Leave the option out')


_of_torch = Join.__init__


@functools.wraps(_of_torch)
def _init(self, joinables, enable=True, *rest, **options):
    for model in joinables if enable else ():
        if _is_ours(model):
            _check(_watched.get(model, False), **options)
    _of_torch(self, joinables, enable, *rest, **options)


def offer():
    """Replaces the constructor of Join by one that checks models of this package."""
    Join.__init__ = _init
