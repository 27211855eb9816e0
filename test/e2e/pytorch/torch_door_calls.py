"""Used by test_torch_door. Compares each call of gradpool.torch with plain torch on the inputs of
all ranks."""
import copy
import gc
import os
import pickle
import time
import weakref

import harness

UNTIL_S = 60    # time limit of all operations, in seconds


class Rank:
    """A process of the job. It collects differences."""

    def __init__(self, rank, workers):
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(workers))
        import torch
        import gradpool.torch as hvd
        self.torch, self.hvd, self.rank, self.workers = torch, hvd, rank, workers
        self.device = os.environ.get('TEST_DEVICE', 'cpu')
        torch.set_num_threads(1)
        hvd.init()
        self.wrong = []

    def values(self, rank, shape=(7, 3), dtype='float32'):
        """Returns small integers. Other ranks can compute them, too."""
        torch = self.torch
        count = torch.Size(shape).numel()
        values = torch.arange(count) % 5 + rank + 1
        return values.to(self.device, getattr(torch, dtype)).view(shape)

    def every(self, *arguments):
        return [self.values(rank, *arguments) for rank in range(self.workers)]

    def expect(self, what, found, wanted):
        pairs = zip(found, wanted) if isinstance(found, (list, tuple)) else [(found, wanted)]
        for one, other in pairs:
            if one.dtype != other.dtype or not self.torch.equal(one.cpu(), other.cpu()):
                self.wrong.append(f'{what}: {one} instead of {other}')

    def expect_true(self, what, is_so):
        if not is_so:
            self.wrong.append(what)

    def raised(self, call):
        """Makes a call that must fail. Returns [class of the error, its text]."""
        try:
            call()
        except Exception as error:
            return [type(error).__name__, str(error)]
        return ['nothing', '']


def product(tensors):
    first, *others = tensors
    for other in others:
        first = first * other
    return first


def compare_reductions(of):
    hvd, torch = of.hvd, of.torch
    for dtype in 'float32', 'float64', 'float16', 'bfloat16', 'int32', 'int64', 'int8':
        every = of.every((7, 3), dtype)
        stack = torch.stack(every)
        is_float = stack.is_floating_point()
        mean = sum(every) / of.workers if is_float else \
            sum(every).div(of.workers, rounding_mode='floor')
        for op, wanted in ((hvd.Sum, sum(every)), (hvd.Min, stack.amin(0)),
                           (hvd.Max, stack.amax(0)), (hvd.Product, product(every)),
                           (hvd.Average, mean)):
            found = hvd.allreduce(every[of.rank], op=op, name=f'{dtype}.{op.name}')
            of.expect(f'allreduce {op} {dtype}', found, wanted)
    every = of.every()
    mine = every[of.rank].clone()
    of.expect('average=False', hvd.allreduce(mine, average=False), sum(every))
    of.expect('scaled', hvd.allreduce(mine, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0),
              2 * sum(every))
    of.expect('what was given', mine, every[of.rank])
    of.expect('allreduce_', hvd.allreduce_(mine, op=hvd.Sum), sum(every))
    of.expect('in place', mine, sum(every))
    strided = every[of.rank].clone().t()
    hvd.synchronize(hvd.allreduce_async_(strided, op=hvd.Sum, name='strided'))
    of.expect('strides', strided, sum(every).t())
    for kind in hvd.Compression.fp16, hvd.Compression.bf16:
        of.expect('compressed', hvd.allreduce(every[of.rank], op=hvd.Sum, compression=kind),
                  sum(every))


def compare_groups(of):
    hvd = of.hvd
    shapes = (3,), (2, 2), (5, 1)
    mine = [of.values(of.rank, shape) for shape in shapes]
    sums = [sum(of.every(shape)) for shape in shapes]
    of.expect('grouped', hvd.grouped_allreduce(mine, op=hvd.Sum, name='group'), sums)
    for _ in range(2):      # the first turn describes the group, the second one uses it
        handle = hvd.grouped_allreduce_async(mine, op=hvd.Sum, name='group')
        of.expect('grouped_async', hvd.synchronize(handle), sums)
    hvd.grouped_allreduce_(mine, op=hvd.Sum)
    of.expect('grouped in place', mine, sums)
    halves = of.every((4,), 'float64')
    of.expect('push_pull', hvd.push_pull(halves[of.rank], name='byteps'), sum(halves) / of.workers)
    hvd.declare('byteps.inplace')
    hvd.push_pull_(halves[of.rank], average=False, name='byteps.inplace')
    of.expect('push_pull_', halves[of.rank], sum(of.every((4,), 'float64')))


def compare_gathers(of):
    hvd, torch = of.hvd, of.torch
    for step in range(3):   # more rows in each step; one rank has none
        for dtype in 'float32', 'int16', 'bool', 'complex64':
            every = [of.values(rank, ((rank + 2 * step) % 4, 3), 'int64').to(getattr(torch, dtype))
                     for rank in range(of.workers)]
            found = hvd.allgather(every[of.rank], name=f'rows {dtype}')
            of.expect(f'allgather {step} {dtype}', found, torch.cat(every))
    every = of.every((2,))
    handles = [hvd.allgather_async(every[of.rank] + i) for i in range(3)]
    for i in (2, 0, 1):
        of.expect('allgather_async', hvd.synchronize(handles[i]), torch.cat(every) + i)
    of.expect_true('objects', hvd.allgather_object({'of': of.rank}) ==
                   [{'of': rank} for rank in range(of.workers)])
    of.expect_true('an object', hvd.broadcast_object(['x' * 99 * of.rank], 1) == ['x' * 99])


def compare_groups_of_rows(of):
    hvd, torch = of.hvd, of.torch
    for step in range(2):   # more rows in each step, of several dtypes; one rank has none
        shapes = [((rank + 2 * step) % 4, 3) for rank in range(of.workers)]
        every = [[of.values(rank, shape), of.values(rank, (rank + 1,), 'int16'),
                  of.values(rank, (2, 1), 'complex64')] for rank, shape in enumerate(shapes)]
        handle = hvd.grouped_allgather_async(every[of.rank], name='groups of rows')
        of.expect('grouped_allgather', hvd.synchronize(handle), map(torch.cat, zip(*every)))
    even, odd = of.every((2 * of.workers, 3)), of.every((2 * of.workers + 1,), 'int32')
    rows = [3] + [2] * (of.workers - 1)
    found = hvd.grouped_reducescatter([even[of.rank], odd[of.rank]], op=hvd.Sum, name='deals',
                                      prescale_factor=2)
    of.expect('grouped_reducescatter', found, [2 * sum(even).chunk(of.workers)[of.rank],
                                               2 * sum(odd).split(rows)[of.rank]])
    weights = of.every((2 * of.workers + 1, 2))
    given = [of.values(of.rank, (of.rank + 1, 2)).requires_grad_() for _ in range(2)]
    one, other = hvd.grouped_allgather(given)
    (one * of.values(of.rank, one.shape)).sum().backward()      # the other rank's gradient is zeros
    count = sum(of.every(one.shape)) / of.workers
    before = of.rank * (of.rank + 1) // 2
    of.expect('through a group of rows', [one.grad for one in given],
              [count[before:before + of.rank + 1], torch.zeros_like(given[1])])
    given = weights[of.rank].clone().requires_grad_()
    dealt, = hvd.grouped_reducescatter([given])
    (dealt * (of.rank + 1)).sum().backward()
    dealt = [torch.full((count, 2), rank + 1.) for rank, count in enumerate(rows)]
    of.expect('through a group of deals', given.grad, torch.cat(dealt))
    for call in hvd.grouped_allgather, hvd.grouped_reducescatter:
        of.expect_true('no tensors', 'of no tensors' in of.raised(lambda: call([]))[1])


def compare_norms(of):
    """Compares SyncBatchNorm with torch's BatchNorm on the batches of all ranks."""
    hvd, torch = of.hvd, of.torch
    norms = {0: torch.nn.BatchNorm1d, 2: torch.nn.BatchNorm2d, 3: torch.nn.BatchNorm3d}
    some = hvd.add_process_set([0, 1]) if of.workers > 2 else hvd.global_process_set
    for options in ({}, {'momentum': None}, {'affine': False}, {'track_running_stats': False},
                    {'eps': 0.1, 'momentum': 0.7, 'process_set': some}):
        for dims, is_empty in ((0, False), (2, True), (3, False)):
            of_set = options.get('process_set', hvd.global_process_set)
            if not of_set.included():
                continue
            mine = hvd.SyncBatchNorm(5, **options).double()
            plain = {key: value for key, value in options.items() if key != 'process_set'}
            whole = norms[dims](5, **plain).double()
            for norm in (mine, whole) if mine.affine else ():
                norm.weight.data.copy_(torch.arange(1, 6))
            for turn in range(2):
                compare_a_norm(of, mine, whole, of_set, dims, is_empty and turn == 1)
            mine, whole = mine.eval(), whole.eval()
            batch = torch.randn(3, 5, *[2] * dims, dtype=torch.float64)
            of.expect_true('eval', torch.allclose(mine(batch), whole(batch), rtol=1e-9))
    of.expect_true('a copy', copy.deepcopy(mine).process_set is mine.process_set
                   and pickle.loads(pickle.dumps(hvd.global_process_set)) is hvd.global_process_set)
    of.expect_true('channels', 'expected [batch, 5, ...]' in of.raised(
        lambda: mine.train()(torch.ones(2, 4)))[1])
    if some is not hvd.global_process_set:
        hvd.remove_process_set(some)


def compare_a_norm(of, mine, whole, of_set, dims, is_empty):
    """Uses one batch of another size on each rank."""
    torch = of.torch
    rows = [0 if is_empty and rank == 1 else rank + 2 for rank in of_set.ranks]
    chosen = torch.Generator().manual_seed(dims)
    batch = torch.randn(sum(rows), 5, *[3] * dims, dtype=torch.float64, generator=chosen) + 7
    weight = torch.randn(batch.shape, dtype=torch.float64, generator=chosen)
    part = batch.split(rows)[of_set.rank()].clone().requires_grad_()
    batch.requires_grad_()
    found, wanted = mine(part), whole(batch)
    (found * weight.split(rows)[of_set.rank()]).sum().backward()
    (wanted * weight).sum().backward()
    pairs = {'forward': (found, wanted.split(rows)[of_set.rank()]),
             'gradient': (part.grad, batch.grad.split(rows)[of_set.rank()])}
    for name, one in mine.named_buffers():
        pairs[name] = one, whole.get_buffer(name)
    for name, one in mine.named_parameters():
        other = whole.get_parameter(name)
        pairs[name] = of.hvd.allreduce(one.grad, op=of.hvd.Sum, process_set=of_set), other.grad
        one.grad = other.grad = None
    for name, (one, other) in pairs.items():
        of.expect_true(f'{name} of {mine}', one.shape == other.shape
                       and torch.allclose(one, other, rtol=1e-9, atol=1e-9))


def compare_copies(of):
    torch, hvd, last = of.torch, of.hvd, of.workers - 1
    for dtype in 'float32', 'int64', 'uint8':
        for root in 0, last:    # another root with the same name
            every = of.every((7, 3), dtype)
            of.expect('broadcast', hvd.broadcast(every[of.rank], root, name=f'copy {dtype}'),
                      every[root])
            hvd.broadcast_(every[of.rank], root)
            of.expect('broadcast_', every[of.rank], of.values(root, (7, 3), dtype))
    even, odd = of.every((2 * of.workers, 3)), of.every((2 * of.workers + 1,), 'int32')
    of.expect('reducescatter', hvd.reducescatter(even[of.rank], op=hvd.Sum, name='deal'),
              sum(even).chunk(of.workers)[of.rank])
    of.expect('reducescatter of means', hvd.reducescatter(even[of.rank]),
              (sum(even) / of.workers).chunk(of.workers)[of.rank])
    for dtype in 'float16', 'bfloat16':     # the sum is too large for float16, or is rounded
        large = torch.linspace(30000, 60000, 2 * of.workers * 50).view(2 * of.workers, 50)
        large = (large - of.rank).to(getattr(torch, dtype))
        of.expect(f'reducescatter of large {dtype}', hvd.reducescatter(large),
                  hvd.allreduce(large).chunk(of.workers)[of.rank])
    rows = [3] + [2] * (of.workers - 1)
    handle = hvd.reducescatter_async(odd[of.rank], op=hvd.Max)
    of.expect('reducescatter unevenly', hvd.synchronize(handle),
              torch.stack(odd).amax(0).split(rows)[of.rank])


def compare_exchanges(of):
    hvd, torch = of.hvd, of.torch
    every = of.every((2 * of.workers, 2), 'int64')
    of.expect('alltoall', hvd.alltoall(every[of.rank], name='swap'),
              torch.cat([one.chunk(of.workers)[of.rank] for one in every]))
    for step in range(2):       # rank r sends r + i + step rows to rank i
        splits = [[rank + i + step for i in range(of.workers)] for rank in range(of.workers)]
        every = [of.values(rank, (sum(splits[rank]), 2), 'int64') for rank in range(of.workers)]
        rows, received = hvd.alltoall(every[of.rank], torch.tensor(splits[of.rank]), name='swap')
        of.expect('alltoall with splits', rows, torch.cat(
            [one.split(splits[rank])[of.rank] for rank, one in enumerate(every)]))
        of.expect_true('received', received.tolist() == [of_rank[of.rank] for of_rank in splits])


def compare_orders(of):
    """Starts many names at once, in another order on each rank. Waits for them in a third order.
    Repeats this three times."""
    hvd, names = of.hvd, [f'any order {i}' for i in range(12)]
    for _ in range(3):
        mine = names[of.rank * 5:] + names[:of.rank * 5]
        handles = {name: hvd.allreduce_async(of.values(of.rank, (4,)) + int(name.split()[-1]),
                                             name=name, op=hvd.Sum) for name in mine}
        for name in reversed(mine[3:] + mine[:3]):
            wanted = sum(of.every((4,))) + of.workers * int(name.split()[-1])
            of.expect(name, hvd.synchronize(handles[name]), wanted)
    # These gather operations need more room than was reserved, so they start again. The ranks wait
    # for them in opposite orders.
    for rows in 1, 40:
        block = of.values(of.rank, (rows, 2))
        handles = [hvd.allgather_async(block, name=f'more {i}') for i in range(2)]
        for i in (0, 1) if of.rank else (1, 0):
            of.expect('more rows', hvd.synchronize(handles[i]),
                      of.torch.cat(of.every((rows, 2))))
    hvd.barrier()
    until = time.monotonic() + UNTIL_S
    handle = hvd.allreduce_async(of.values(of.rank), name='polled')
    while not hvd.poll(handle) and time.monotonic() < until:
        time.sleep(0.001)
    of.expect_true('polled', hvd.poll(handle))
    hvd.synchronize(handle)


def compare_process_sets(of):
    hvd, last = of.hvd, of.workers - 1
    members = [0, last] if last > 1 else [1]
    some = hvd.add_process_set(members)
    of.expect_true('ranks of a set', some.ranks == members and some.size() == len(members)
                   and some.process_set_id == 1 and some.included() == (of.rank in members))
    if some.included():
        every = of.every()
        theirs = [every[rank] for rank in members]
        of.expect_true('rank in a set', some.rank() == members.index(of.rank))
        of.expect('of a set', hvd.allreduce(every[of.rank], process_set=some),
                  sum(theirs) / len(members))
        of.expect('gathered in a set', hvd.allgather(every[of.rank], process_set=some),
                  of.torch.cat(theirs))
        of.expect('copied in a set', hvd.broadcast(every[of.rank], last, process_set=some),
                  theirs[-1])
    else:
        of.expect_true('outside', of.raised(lambda: hvd.allreduce(
            of.values(0), process_set=some))[0] == 'Mismatch')
    hvd.remove_process_set(some)
    compare_sets_made_again(of, members)


def compare_sets_made_again(of, members):
    """Uses a name with another shape than in a former set of the same ranks. The former set must
    leave no state."""
    hvd, torch = of.hvd, of.torch
    harness.until(hvd._door.door().forget, 'the last round of the former set is over')
    before = len(hvd._door.door().job.tensors())
    for count in range(3, 6):
        some = hvd.add_process_set(members)
        if some.included():
            of.expect('in a set that is made again', hvd.allreduce(
                torch.ones(count), op=hvd.Sum, name='again', process_set=some),
                torch.full((count,), float(len(members))))
        hvd.remove_process_set(some)
    harness.until(hvd._door.door().forget, 'the last round of a set that is no more is over')
    of.expect_true('nothing is left of a set', len(hvd._door.door().job.tensors()) == before)


def compare_dropped_handles(of):
    """Drops the handles and the tensors of operations."""
    tensor = of.torch.ones(1000)
    of.hvd.allreduce_async_(tensor, op=of.hvd.Sum, name='dropped')
    harness.until(lambda: tensor[0] == of.workers, 'the sum is in place')
    left = weakref.ref(tensor)
    del tensor

    def is_gone():
        gc.collect()
        return left() is None
    harness.until(is_gone, 'the tensor is dropped')


def compare_paths(of):
    """Uses names that look like a tensor of another name."""
    hvd, torch = of.hvd, of.torch
    for name in 'path', 'path/1', 'path/1/1', 'path/(words)':
        of.expect(name, hvd.allreduce(torch.ones(5), op=hvd.Sum, name=name),
                  torch.full((5,), float(of.workers)))


def compare_gradients(of):
    hvd, torch = of.hvd, of.torch
    weights = of.every((of.workers, 2))

    def gradient(what, weight, *arguments, **options):
        given = of.values(of.rank, (of.workers, 2)).requires_grad_()
        (what(given, *arguments, **options) * weight).sum().backward()
        return given.grad
    mine = weights[of.rank]
    of.expect('through allreduce', gradient(hvd.allreduce, mine, op=hvd.Sum), sum(weights))
    of.expect('through a mean', gradient(hvd.allreduce, mine), sum(weights) / of.workers)
    of.expect('through broadcast', gradient(hvd.broadcast, mine, 1),
              sum(weights) / of.workers if of.rank == 1 else 0 * mine)
    wide = of.every((of.workers * of.workers, 2))
    of.expect('through allgather', gradient(hvd.allgather, wide[of.rank]),
              (sum(wide) / of.workers).chunk(of.workers)[of.rank])
    of.expect('through reducescatter', gradient(hvd.reducescatter, mine[:1], op=hvd.Sum),
              of.workers * torch.cat([weight[:1] for weight in weights]))
    of.expect('through alltoall', gradient(hvd.alltoall, mine),
              torch.cat([weight[of.rank:of.rank + 1] for weight in weights]))


def compare_all(of):
    for compare in (compare_reductions, compare_groups, compare_gathers, compare_copies,
                    compare_exchanges, compare_orders, compare_process_sets, compare_paths,
                    compare_dropped_handles, compare_gradients, compare_groups_of_rows,
                    compare_norms):
        compare(of)
