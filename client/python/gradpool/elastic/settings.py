"""Settings that all workers of a Run share: settings of optimizers, and names of metrics. A late
worker compares its settings with the settings in the state that it receives, because loading the
state would replace the worker's settings without a message."""
import torch

from ..errors import mismatch

_ABSENT = 'absent'
# Settings that store initial values, each with the settings that a scheduler changes during the
# training.
_CHANGED = (('initial_lr', ('lr',)), ('max_momentum', ('momentum', 'betas')))


def settings_of(objects, model, reports):
    """Returns {name: value} of the settings at the beginning of the script.

      objects  {name: object}; objects with param_groups are optimizers"""
    names = {id(one): name for name, one in model.named_parameters()}
    found = {'number of objects in also': len(objects) - 2, 'reports': tuple(reports)}
    for name, one in objects.items():
        found[f'class of {name}'] = type(one).__name__
        for number, group in enumerate(getattr(one, 'param_groups', ())):
            found.update(_settings_of_group(f'group {number} of {name}', group, names))
    return found


def _settings_of_group(place, group, names):
    changed = {key for mark, keys in _CHANGED if mark in group for key in keys} | {'params'}
    settings = {f'{key} in {place}': _plain(value) for key, value in group.items()
                if key not in changed}
    settings.update((f'parameter {i} in {place}', names.get(id(one), tuple(one.shape)))
                    for i, one in enumerate(group['params']))
    return settings


def _plain(value):
    """Returns a value that can be compared and sent."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return tuple(map(_plain, value))
    return value if isinstance(value, (bool, int, float, str, type(None))) else type(value).__name__


def check_settings(job, mine, given, giver):
    """Raises Mismatch for a difference of the settings of this worker and of rank `giver`; None:
    the given settings are those of the trial's checkpoint."""
    names = [*given, *(name for name in mine if name not in given)]
    wrong = [name for name in names if mine.get(name, _ABSENT) != given.get(name, _ABSENT)]
    if not wrong:
        return
    more = f' (and {len(wrong) - 1} more settings)' if len(wrong) > 1 else ''
    name = wrong[0]
    if giver is None:
        raise mismatch(f'{job}: {name} is {mine.get(name, _ABSENT)!r}, and was '
                       f'{given.get(name, _ABSENT)!r} before the trial rested{more}; restore the '
                       'script')
    raise mismatch(f'{job}: {name} is {mine.get(name, _ABSENT)!r} here and '
                   f'{given.get(name, _ABSENT)!r} on rank {giver}{more}; start all workers with '
                   'the same settings')
