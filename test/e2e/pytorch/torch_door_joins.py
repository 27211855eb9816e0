"""Used by test_torch_door. Tests operations with joined and with absent ranks, operations that are
refused at once, and the texts that ranks exchange."""
import contextlib
import os
import pathlib
import threading
import time

import harness
import progress
from torch_door_calls import Rank, UNTIL_S

EXCHANGES = 300


def new_things(of, there):
    """Uses operations that no rank has called before. The ranks `there` call them in any order."""
    hvd, torch, name = of.hvd, of.torch, f'new with {len(there)}'
    every = {rank: of.values(rank) for rank in there}
    mine, total = every[of.rank], sum(every.values())
    begun = [(lambda: hvd.allreduce_async(mine, op=hvd.Sum, name=f'{name} sum'), total),
             (lambda: hvd.allreduce_async(mine, name=f'{name} mean'), total / of.workers),
             (lambda: hvd.allreduce_async(mine.half(), op=hvd.Min, prescale_factor=2,
                                          name=f'{name} least'),
              2 * torch.stack(list(every.values())).amin(0).half()),
             (lambda: hvd.allgather_async(mine, name=f'{name} rows'),
              torch.cat(list(every.values())))]
    order = begun if of.rank % 2 else begun[::-1]
    handles = [(call(), wanted) for call, wanted in order]
    for handle, wanted in handles:
        of.expect(f'{name}: {wanted}', handle.wait(), wanted)
    for shape in (3, 2), (70000,):      # the second call of each shape is a known operation
        for _ in range(2):
            of.expect('without a name', hvd.grouped_allreduce(
                [torch.ones(shape), torch.ones(2)], op=hvd.Sum,
                name=f'{name} group {shape}'), [torch.full(shape, 1. * len(there)),
                                                torch.full((2,), 1. * len(there))])
    # all of these descriptions fit into one message
    many = [torch.ones(1 + i % 7, 3) for i in range(120)]
    of.expect('many in a group', hvd.grouped_allreduce(many, op=hvd.Sum, name=f'{name} many'),
              [len(there) * one for one in many])
    for length in 5003, 6000 + len(there):      # the length changes in each call
        of.expect('a length', hvd.allreduce(torch.ones(length), op=hvd.Sum),
                  torch.full((length,), 1. * len(there)))
    sparse = torch.eye(3).to_sparse(1) * (of.rank + 1)
    of.expect('sparse', hvd.allreduce(sparse, op=hvd.Sum, name=f'{name} sparse').to_dense(),
              torch.eye(3) * sum(rank + 1 for rank in there))
    hvd.barrier()


def refused_things(of):
    """Makes calls that are refused. Returns [kind, text, seconds] of each."""
    hvd, ones = of.hvd, of.torch.ones(of.workers, 2)
    found = []
    for call in (lambda: hvd.broadcast(ones, of.rank, name='not to copy'),
                 lambda: hvd.broadcast(ones, of.rank, name='known copy'),
                 lambda: hvd.alltoall(ones, name='not to swap'),
                 lambda: hvd.reducescatter(ones),
                 lambda: hvd.allgather_object('thing', name='not to gather'),
                 lambda: hvd.broadcast_parameters({'of': ones}, of.rank)):
        watch = progress.Stopwatch()
        found.append([*of.raised(call), watch.seconds()])
    return found


def look_seldom():
    """Delays the next check in join(), so that other ranks receive the message and leave before
    this check."""
    from gradpool.torch._operations import joining
    rest = joining._Rounds.rest
    joining._Rounds.rest = lambda rounds: time.sleep(0.5) or rest(rounds)


def rank_joins_early(rank, workers):
    """Rank 0 joins first, then rank 1, then rank 2."""
    of = Rank(rank, workers)
    of.hvd.broadcast(of.torch.ones(workers, 2), 2, name='known copy')
    for length in range(5000, 5012):
        of.hvd.allreduce(of.torch.ones(length))
    refused = []
    for turn in range(1, workers):
        if rank >= turn:
            new_things(of, list(range(turn, workers)))
    if rank == workers - 1:
        refused = refused_things(of)
    last = of.hvd.join()
    of.expect_true(f'last {last}', last == workers - 1)
    new_things(of, list(range(workers)))
    watch = progress.Stopwatch()
    if rank == 0:       # a known name with a new shape
        look_seldom()
        told = of.raised(of.hvd.join)
    else:
        told = of.raised(lambda: of.hvd.allreduce(of.torch.ones(5), op=of.hvd.Sum,
                                                  name=f'new with {workers} sum'))
    return of.wrong, refused, [*told, watch.seconds()]


def rank_exchanges_in_threads(rank, workers):
    """Four threads of each rank post and read texts at the same time, as a waiting script and
    the completion thread do. Returns the wrong texts."""
    of = Rank(rank, workers)
    from gradpool._group.notices import Notices
    from gradpool.torch._door import door
    notices = Notices(door().job, 'notices', None, workers, 64)
    notices.declare()
    seen, wrong = [], []

    def exchange():
        while len(seen) < EXCHANGES:
            if not notices.is_left():
                with contextlib.suppress(of.hvd.GradpoolError):
                    notices.leave(f'rank {rank}'.encode())
            texts = notices.find(1)
            if texts is not None:
                seen.append(texts)
            if texts not in (None, [f'rank {other}' for other in range(workers)]):
                wrong.append(texts)
    threads = [threading.Thread(target=exchange) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    of.hvd.barrier()
    return wrong


def rank_is_left_alone(rank, workers):
    """Returns the error about a rank that never starts, and the error about a rank that has
    ended."""
    os.environ['GRADPOOL_TIMEOUT_MS'] = '10000'
    of, is_told = Rank(rank, workers), pathlib.Path(os.environ['TEST_FOLDER'], 'told')
    if rank == 1:
        of.hvd.synchronize(of.hvd.allreduce_async(of.torch.ones(4), name='both'))
        harness.until(is_told.exists, 'the deadline of rank 0, for which this one is late')
        os._exit(0)
    of.hvd.allreduce(of.torch.ones(4), name='both')
    late = of.raised(lambda: of.hvd.allreduce(of.torch.ones(4), name='both'))
    is_told.touch()
    until = time.monotonic() + UNTIL_S
    gone = late
    while gone[0] == 'Timeout' and time.monotonic() < until:
        gone = of.raised(lambda: of.hvd.allreduce(of.torch.ones(4), name=f'only {time.time()}'))
    return late, gone
