"""The name of the job of a torch.distributed group. Rank 0 of the group writes a new name to
torch's store, and the other ranks read the name (Y111).

Counting the former jobs of the process would not work. Such counts differ if a pool (Ray, Spark)
has replaced one of the processes, or if one rank has tried to join twice."""
import errno
import os
import secrets

from ..errors import error_of

_KEY = 'gradpool/job/{}'
_defaults = 0       # number of default groups that this process has created
_current = None     # name of the job of the latest default group


def job_name(options, is_default):
    """Returns the job name for torch's description of a group. Raises Timeout if rank 0 of the
    group has not written a name."""
    global _defaults, _current
    _defaults += is_default
    name = _read(options, _chosen(is_default))
    if is_default:
        _current = name
    return name


def _chosen(is_default):
    """Returns the name that this process would give the group as its rank 0."""
    if _current and not is_default:
        return _current
    name = os.environ.get('GRADPOOL_JOB') or f'torch-{secrets.token_hex(6)}'
    return f'{name}.{_defaults}' if _defaults > 1 else name


def _read(options, chosen):
    """Returns the name in torch's store. torchrun has one store for all groups, so each generation
    of a group has a key of its own."""
    store, rank = options.store, options.group_rank
    generation = (store.add('gradpool/joins', 1) - 1) // options.group_size
    key = _KEY.format(generation)
    if rank == 0:
        store.set(key, chosen)
        return chosen
    try:
        store.wait([key], options.timeout)
    except RuntimeError:
        raise error_of(-errno.ETIMEDOUT, f'rank {rank} of group {options.group_id}: rank 0 of the '
                       f'group has not named the job in {options.timeout.total_seconds():g} s (key '
                       f'{key} of torch\'s store); look at rank 0') from None
    return store.get(key).decode()
