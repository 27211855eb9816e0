"""The job of a model's process group: its name and its time-out."""
import hashlib
import os

import torch.distributed

from .._native.binding import INT_MAX, number
from ..client import DEFAULT_TIMEOUT_MS
from ..errors import overdue

# A job's name lists at most this many ranks, because a name has at most 127 bytes.
_TOLD_MAX = 40


def job_name_of(name, group):
    """Returns the name of the job of a process group. `name`: given by the script, or None for
    GRADPOOL_JOB. If the group has only some of the ranks, their list is appended, so that each
    group has its own job (Y73)."""
    name = name or os.environ.get('GRADPOOL_JOB')
    ranks = torch.distributed.get_process_group_ranks(group)
    if not name or len(ranks) == torch.distributed.get_world_size():
        return name
    return f'{name}.{_told(sorted(ranks))}'


def _told(ranks):
    """Returns a list such as 0-3,8. A long list is replaced by a digest."""
    runs = []
    for rank in ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    text = ','.join(f'{first}-{last}' if last > first else f'{first}' for first, last in runs)
    if len(text) <= _TOLD_MAX:
        return text
    return f'{len(ranks)}-ranks-{hashlib.sha256(text.encode()).hexdigest()[:12]}'


class Limit:
    """Deadline of a model's bucket, and the setting that raises this deadline.

    timeout_ms  from the script; 0: GRADPOOL_TIMEOUT_MS, or the timeout of the process group"""

    def __init__(self, timeout_ms, group):
        self.ms, self._whose = number(timeout_ms, 'timeout_ms', INT_MAX), 'attach(timeout_ms=)'
        if not self.ms and os.environ.get('GRADPOOL_TIMEOUT_MS'):
            self.ms, self._whose = int(os.environ['GRADPOOL_TIMEOUT_MS']), 'GRADPOOL_TIMEOUT_MS'
        if not self.ms:
            self.ms, self._whose = _timeout_of(group)

    def told(self, timeout):
        """Returns a Timeout whose text names the setting to change."""
        return overdue(timeout, self.ms / 1e3, self._whose)


def _timeout_of(group):
    """Returns the time-out in milliseconds, and the setting that defines it."""
    seconds = next(filter(None, map(_seconds_of, _backends_of(group))), None)
    if seconds is None:     # the backend has no time-out
        return DEFAULT_TIMEOUT_MS, 'attach(timeout_ms=) or GRADPOOL_TIMEOUT_MS'
    return (max(min(int(seconds * 1e3), INT_MAX), 1),
            'init_process_group(timeout=) or new_group(timeout=)')


def _backends_of(group):
    """Yields the group itself (torch 1), or the group for each kind of device (torch 2)."""
    yield group
    for device in getattr(group, '_device_types', ()):
        yield group._get_backend(device)


def _seconds_of(backend):
    """Returns the backend's time-out in seconds; None: unknown."""
    timeout = getattr(getattr(backend, 'options', None), '_timeout', None)
    if timeout is not None:
        return timeout.total_seconds()
    return getattr(backend, 'timeout_s', None)      # the group belongs to gradpool.distributed
