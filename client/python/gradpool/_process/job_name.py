"""The name of the job of a group of torch.distributed: rank 0 of the group chooses the name, and
the other ranks read it in torch's store (Y111).

A count of former jobs of the process would differ where a process was replaced by a fresh one, as
in pools of processes (Ray, Spark), or where one rank alone tries a second time."""
import errno
import os
import secrets

from ..errors import error_of

_KEY = 'gradpool/job/{}'
_defaults = 0       # number of default groups that this process has made
_current = None     # name of the job of the latest one


def job_name(options, is_default):
    """Returns the name for torch's description of a group. Timeout: rank 0 of the group has not
    chosen a name."""
    global _defaults, _current
    _defaults += is_default
    name = _read(options, _chosen(is_default))
    if is_default:
        _current = name
    return name


def _chosen(is_default):
    """Returns the name that this process would choose as rank 0."""
    if _current and not is_default:
        return _current
    name = os.environ.get('GRADPOOL_JOB') or f'torch-{secrets.token_hex(6)}'
    return f'{name}.{_defaults}' if _defaults > 1 else name


def _read(options, chosen):
    """A store may outlive its groups (torchrun has one store for all of them), so each generation
    of the group has its own key."""
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
