"""torch.distributed.monitored_barrier(): a barrier whose error names the missing ranks.

Every rank sends rank 0 a message. Rank 0 waits for all messages and then sends each present rank
the list of missing ranks. If the list is not empty, all ranks raise an error. The error begins with
gloo's words, because scripts may search for these words."""
import contextlib
import datetime
import errno
import functools
import time

import torch
import torch.distributed
from torch.distributed import distributed_c10d

from ..errors import error_of, GradpoolError

_TAG = 'monitored_barrier'
_ANSWER_S = 1.0     # time for rank 0 to inform the other ranks, added to the time-out


def pass_barrier(group, timeout_s, names_all):
    """Returns when all ranks of `group` have called this function. If a rank has not called the
    function within `timeout_s`, raises an error and fails the group (Y9). names_all: the error
    names all missing ranks, not only the first."""
    try:
        if group.rank() == 0:
            _watch(group, timeout_s, names_all)
        else:
            _come(group, timeout_s)
    except GradpoolError as error:
        group.fail(error)
        raise


def _watch(group, timeout_s, names_all):
    if timeout_s <= 0:
        raise _late(f'Rank 0 timed out in monitoredBarrier: its timeout is {timeout_s:g} s')
    until_s = time.monotonic() + timeout_s
    comings = [group.recv([torch.empty(1)], rank, _TAG) for rank in range(1, group.size())]
    reasons = [_reason_of(coming, until_s) for coming in comings]
    missing = [rank for rank, reason in enumerate(reasons, 1) if reason]
    _answer(group, missing)
    if missing:
        raise _late(f'{_named(missing if names_all else missing[:1])} failed to pass '
                    f'monitoredBarrier in {1e3 * timeout_s:g} ms: {reasons[missing[0] - 1]}')


def _reason_of(coming, until_s):
    """Returns the reason why a rank is missing; None: the rank is present."""
    try:
        _wait(coming, until_s)
    except GradpoolError as error:
        return str(error)
    return None


def _answer(group, missing):
    until_s = time.monotonic() + _ANSWER_S
    answer = torch.zeros(group.size(), dtype=torch.uint8)
    answer[missing] = 1
    here = [rank for rank in range(1, group.size()) if rank not in missing]
    with contextlib.suppress(GradpoolError):    # a rank that has left gets another error
        for sent in [group.send([answer], rank, _TAG) for rank in here]:
            _wait(sent, until_s)


def _come(group, timeout_s):
    until_s = time.monotonic() + timeout_s + _ANSWER_S
    answer = torch.empty(group.size(), dtype=torch.uint8)
    try:
        for message in (group.send([torch.ones(1)], 0, _TAG), group.recv([answer], 0, _TAG)):
            _wait(message, until_s)
    except GradpoolError as error:
        raise _unanswered(group, error, -error.errno) from None
    missing = answer.nonzero().flatten().tolist()
    if missing:
        raise _unanswered(group, f'{_named(missing)} failed to pass it', -errno.ETIMEDOUT)


def _wait(message, until_s):
    left_s = max(until_s - time.monotonic(), 1e-3)
    message.wait(datetime.timedelta(seconds=left_s))


def _unanswered(group, why, code):
    return error_of(code, f'Rank {group.rank()} successfully reached monitoredBarrier, but '
                    f'received errors while waiting for send/recv from rank 0: {why}')


def _late(text):
    return error_of(-errno.ETIMEDOUT, text)


def _named(ranks):
    return f"{'Rank' if len(ranks) == 1 else 'Ranks'} {', '.join(map(str, ranks))}"


_of_torch = distributed_c10d.monitored_barrier


@functools.wraps(_of_torch)
def _monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
    meant = torch.distributed.group.WORLD if group is None else group
    if hasattr(meant, 'getBackendName') and meant.getBackendName() == 'gradpool':
        return meant.monitored_barrier(timeout, wait_all_ranks)
    return _of_torch(group, timeout, wait_all_ranks)


def offer():
    """Replaces torch.distributed.monitored_barrier(), which accepts only groups of gloo."""
    torch.distributed.monitored_barrier = distributed_c10d.monitored_barrier = _monitored_barrier
