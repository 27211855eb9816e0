"""Tests gradpool.distributed with real processes on a real service. Each operation is compared
with gloo's result. An operation that gloo lacks is compared with a computation on gathered
tensors."""
import collections
import datetime
import os
import tempfile
import time
import types

import progress
import python_case
import ranks
import test_ddp
from python_case import setUpModule, tearDownModule     # noqa: found by name

TIMEOUT_S = 60      # timeout of each group, in seconds
SOON_S = 2          # timeout, set just before an operation that must time out
COUNT = 37


class Rank:
    """A rank in two groups: one of the backend `gradpool`, one of gloo with the same ranks."""

    def __init__(self, rank, workers, timeout_s=TIMEOUT_S, has_gloo=True):
        import torch
        import torch.distributed as dist
        import gradpool.distributed
        self.torch, self.dist, self.rank, self.workers = torch, dist, rank, workers
        self.device = os.environ.get('TEST_DEVICE', 'cpu')
        torch.set_num_threads(1)
        self.timeout = datetime.timedelta(seconds=timeout_s)
        self.begin()
        self.gloo = dist.new_group(backend='gloo') if has_gloo else None
        self.wrong = []

    def begin(self, store='store'):
        self.dist.init_process_group('gradpool', rank=self.rank, world_size=self.workers,
                                     init_method=f"file://{os.environ['TEST_FOLDER']}/{store}",
                                     timeout=self.timeout)

    def values(self, dtype, count=COUNT):
        """Returns small integers of this rank. Both backends sum them exactly."""
        values = self.torch.arange(count) % 5 + self.rank
        return values.to(self.device, getattr(self.torch, dtype))

    def pair(self, *arguments):
        """Returns values for gradpool, and equal values on the host for gloo."""
        return self.values(*arguments), self.values(*arguments).cpu()

    def everybodys(self, tensor, group=None):
        """Returns the tensors of all ranks of gloo's group, on the host."""
        tensor = tensor.cpu().contiguous()
        found = [self.torch.empty_like(tensor) for _ in range(self.dist.get_world_size(group))]
        self.dist.all_gather(found, tensor, group=group or self.gloo)
        return found

    def expect(self, what, found, wanted):
        """Compares results, also NaNs and shapes. Stores each difference."""
        pairs = zip(found, wanted) if isinstance(found, (list, tuple)) else [(found, wanted)]
        for one, other in pairs:
            if one.dtype != other.dtype or not self.torch.equal(one.cpu(), other.cpu()):
                self.wrong.append(f'{what}: {one} instead of {other}')


FLOATS = 'float32', 'float64', 'float16', 'bfloat16'
INTEGERS = 'int32', 'int64', 'int16', 'int8', 'uint8'
# types reduced by gloo
GLOO = 'float32', 'float64', 'float16', 'int32', 'int64', 'int8', 'uint8'


def compare_reductions(of):
    op = of.dist.ReduceOp
    for dtype in GLOO:
        for kind in (op.SUM, op.PRODUCT, op.MIN, op.MAX):
            ours, theirs = of.pair(dtype)
            of.dist.all_reduce(ours, kind)
            of.dist.all_reduce(theirs, kind, group=of.gloo)
            of.expect(f'all_reduce {dtype} {kind}', ours, theirs)
    for dtype in 'int16', 'bfloat16':
        sum_of = sum(of.everybodys(of.values('int64'))).to(getattr(of.torch, dtype))
        ours = of.values(dtype)
        of.dist.all_reduce(ours)
        of.expect(f'all_reduce {dtype}', ours, sum_of)


def compare_bitwise(of):
    op = of.dist.ReduceOp
    for dtype in 'int64', 'uint8', 'int16':
        for kind, fold in ((op.BAND, of.torch.bitwise_and), (op.BOR, of.torch.bitwise_or),
                           (op.BXOR, of.torch.bitwise_xor)):
            wanted, *others = (v.to(getattr(of.torch, dtype))
                               for v in of.everybodys(of.values('int64')))
            for other in others:
                wanted = fold(wanted, other)
            ours = of.values(dtype)
            of.dist.all_reduce(ours, kind)
            of.expect(f'all_reduce {dtype} {kind}', ours, wanted)


def compare_sums_of_fractions(of):
    """Sums must have the bits of a sum in rank order; a mean is this sum, divided once."""
    mine = of.torch.randn(100000, generator=of.torch.Generator().manual_seed(of.rank))
    mine = mine.to(of.device)
    first, *others = of.everybodys(mine)
    for other in others:
        first = first + other
    for kind, wanted in ((of.dist.ReduceOp.SUM, first),
                         (of.dist.ReduceOp.AVG, first / of.workers)):
        ours = mine.clone()
        of.dist.all_reduce(ours, kind)
        of.expect(f'all_reduce of fractions {kind}', ours, wanted)
    strided = mine.clone().reshape(1000, 100).t()
    of.dist.all_reduce(strided)
    of.expect('all_reduce of strides', strided, first.reshape(1000, 100).t())
    pairs = of.torch.complex(mine, -mine)
    of.dist.all_reduce(pairs)
    of.expect('all_reduce of complex numbers', pairs, of.torch.complex(first, -first))


def compare_copies(of):
    last = of.workers - 1
    for dtype in FLOATS + INTEGERS + ('bool',):
        every = [v.to(getattr(of.torch, dtype)) for v in of.everybodys(of.values('int64'))]
        ours = of.values(dtype)
        of.dist.broadcast(ours, last)
        of.expect(f'broadcast {dtype}', ours, every[last])
        found = [of.torch.empty_like(ours) for _ in every]
        of.dist.all_gather(found, of.values(dtype))
        of.expect(f'all_gather {dtype}', found, every)
        whole = ours.new_empty(of.workers * COUNT)
        of.dist.all_gather_into_tensor(whole, of.values(dtype))
        of.expect(f'all_gather_into_tensor {dtype}', whole, of.torch.cat(every))
        found = [of.torch.empty_like(ours) for _ in every] if of.rank == last else None
        of.dist.gather(of.values(dtype), found, last)
        of.expect(f'gather {dtype}', found or [], every)
        of.dist.scatter(ours, every if of.rank == 1 else None, 1)
        of.expect(f'scatter {dtype}', ours, every[of.rank])


def compare_reduce(of):
    ours, theirs = of.pair('float32')
    of.dist.reduce(ours, 1)
    of.dist.reduce(theirs, 1, group=of.gloo)
    of.expect('reduce', ours, theirs if of.rank == 1 else of.values('float32'))
    mine = of.values('float32', COUNT * of.workers)
    every = of.everybodys(mine)
    for kind, wanted in ((of.dist.ReduceOp.SUM, sum(every)),
                         (of.dist.ReduceOp.AVG, sum(every) / of.workers),
                         (of.dist.ReduceOp.MAX, of.torch.stack(every).amax(0))):
        result = of.torch.empty(COUNT, device=of.device)
        of.dist.reduce_scatter(result, list(mine.chunk(of.workers)), kind)
        of.expect(f'reduce_scatter {kind}', result, wanted.chunk(of.workers)[of.rank])
        of.dist.reduce_scatter_tensor(result, mine, kind)
        of.expect(f'reduce_scatter_tensor {kind}', result, wanted.chunk(of.workers)[of.rank])
    for dtype in of.torch.float16, of.torch.bfloat16:   # the sum is too large for float16
        large = of.torch.linspace(30000, 60000, COUNT * of.workers, device=of.device)
        large = (large - of.rank).to(dtype)
        wanted, result = large.clone(), large[:COUNT].clone()
        of.dist.all_reduce(wanted, of.dist.ReduceOp.AVG)
        of.dist.reduce_scatter_tensor(result, large, of.dist.ReduceOp.AVG)
        of.expect(f'means of {dtype}', result, wanted.chunk(of.workers)[of.rank])


def compare_sparse(of):
    """Each rank has some rows that the other ranks do not have."""
    def mine():
        rows = of.torch.arange(of.rank + 1).view(1, -1) * 2
        return of.torch.sparse_coo_tensor(rows, of.torch.ones(of.rank + 1, 3) + of.rank, (9, 3))
    ours, theirs, at_root, mean = mine(), mine(), mine(), mine()
    of.dist.all_reduce(theirs, group=of.gloo)
    of.dist.all_reduce(ours)
    of.dist.reduce(at_root, 1)
    of.dist.all_reduce(mean, of.dist.ReduceOp.AVG)
    for what, found, wanted in (('all_reduce', ours, theirs), ('mean', mean, theirs / of.workers),
                                ('reduce', at_root, theirs if of.rank == 1 else mine())):
        found, wanted = found.coalesce(), wanted.coalesce()
        of.expect(f'{what} of sparse tensors', (found.indices(), found.values()),
                  (wanted.indices(), wanted.values()))


def compare_all_to_all(of):
    for dtype in 'float32', 'int8':
        given, plain = of.pair(dtype, 4 * of.workers)
        ours, theirs = of.torch.empty_like(given), of.torch.empty_like(plain)
        of.dist.all_to_all_single(ours, given)
        of.dist.all_to_all_single(theirs, plain, group=of.gloo)
        of.expect(f'all_to_all_single {dtype}', ours, theirs)
        # Rank r sends r * i elements to rank i. Rank 0 sends and receives none.
        splits = [of.rank * i for i in range(of.workers)]
        given, plain = of.pair(dtype, sum(splits))
        ours, theirs = of.torch.empty_like(given), of.torch.empty_like(plain)
        of.dist.all_to_all_single(ours, given, splits, splits)
        of.dist.all_to_all_single(theirs, plain, splits, splits, group=of.gloo)
        of.expect(f'all_to_all_single with splits {dtype}', ours, theirs)
        found = [of.torch.zeros_like(block) for block in given.split(splits)]
        of.dist.all_to_all(found, list(given.split(splits)))
        of.expect(f'all_to_all {dtype}', of.torch.cat(found), theirs)
        mine = of.values(dtype, 6 * of.workers).view(of.workers, 3, 2)
        found = [mine.new_zeros(2, 3).t() for _ in mine]
        of.dist.all_to_all(found, list(mine))
        of.expect(f'all_to_all into strides {dtype}', found,
                  [every[of.rank] for every in of.everybodys(mine)])


def compare_subgroups(of):
    """Ranks 0 and 2 take part, then rank 2 alone."""
    for members in ([2, 0], [2]):
        ours, theirs = of.dist.new_group(members), of.dist.new_group(members, backend='gloo')
        if of.rank not in members:
            continue
        for root in members:
            one, other = of.pair('float64')
            of.dist.broadcast(one, root, group=ours)
            of.dist.broadcast(other, root, group=theirs)
            of.expect(f'broadcast in {members}', one, other)
        one, other = of.pair('float32')
        of.dist.all_reduce(one, group=ours)
        of.dist.all_reduce(other, group=theirs)
        of.expect(f'all_reduce in {members}', one, other)
        of.dist.barrier(group=ours)
    objects = [None] * of.workers
    of.dist.all_gather_object(objects, {'rank': of.rank})
    if objects != [{'rank': rank} for rank in range(of.workers)]:
        of.wrong.append(f'all_gather_object: {objects}')


def compare_many_sizes(of):
    """Uses more sizes than the group keeps declared, while earlier operations still run."""
    group = of.dist.distributed_c10d._get_default_group()
    group._names._names_max = 4
    for _ in range(3):
        works, tensors = [], []
        for count in range(1, 8):
            tensors.append(of.values('int32', count))
            works.append(of.dist.all_reduce(tensors[-1], async_op=True))
        for work, tensor in zip(works, tensors):
            work.wait()
            wanted = sum((of.torch.arange(len(tensor)) % 5 + rank) for rank in range(of.workers))
            of.expect(f'all_reduce of {len(tensor)}', tensor, wanted.to(of.torch.int32))


def receive_from_any(of):
    """Receives two messages of each other rank from any source. Then receives a third one from a
    named rank."""
    others = [rank for rank in range(of.workers) if rank != 0]
    if of.rank in others:
        for i in range(3):
            of.dist.send(of.values('float32') + i, 0, tag=5)
        return
    count, found = collections.Counter(), of.torch.empty(COUNT, device=of.device)
    for _ in range(2 * len(others)):
        source = of.dist.recv(found, tag=5)
        of.expect('recv from any', found, of.values('float32') + source + count[source])
        count[source] += 1
    for source in others:
        for i in range(count[source], 3):
            of.dist.recv(found, source, tag=5)
            of.expect(f'recv from {source}', found, of.values('float32') + source + i)


def rank_compares(rank, workers):
    of = Rank(rank, workers)
    for compare in (compare_reductions, compare_bitwise, compare_sums_of_fractions, compare_copies,
                    compare_reduce, compare_sparse, compare_all_to_all, compare_subgroups,
                    compare_many_sizes, receive_from_any):
        compare(of)
    return of.wrong


def send_and_receive(of):
    """Receives tags in another order than they were sent, several messages of one tag, in both
    directions."""
    peer, sent = 1 - of.rank, [of.values('float32') + 100 * i for i in range(4)]
    works = [of.dist.isend(tensor, peer, tag=i // 2) for i, tensor in enumerate(sent)]
    theirs = [tensor - of.rank + peer for tensor in sent]
    for i in (2, 0, 1, 3):      # messages of one tag arrive in order
        found = of.torch.empty(COUNT, device=of.device)
        of.dist.recv(found, peer, tag=i // 2)
        of.expect(f'message {i}', found, theirs[i])
    for work in works:
        work.wait()


def keep_many_under_way(of):
    """Waits for operations of one size in reverse order. The last operation is queued behind the
    others, and its Future is used."""
    tensors = [of.values('float64') + i for i in range(6)]
    works = [of.dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    found, = works[-1].get_future().wait()
    wanted = 2 * of.values('float64') - 2 * of.rank + 1
    of.expect('of a future', found, wanted + 10)
    for i in reversed(range(6)):
        works[i].wait()
        of.expect(f'async {i}', tensors[i], wanted + 2 * i)
        if not works[i].is_completed():
            of.wrong.append('a work that was waited for is not completed')
    chained = of.dist.all_reduce(of.values('float64'), async_op=True).get_future().then(
        lambda future: of.dist.all_reduce(future.value()[0], async_op=True).get_future().wait()[0])
    of.expect('in a callback', chained.wait(), 2 * wanted)
    until = time.monotonic() + TIMEOUT_S
    work = of.dist.barrier(async_op=True)
    while not work.is_completed():
        if time.monotonic() > until:
            of.wrong.append('a work that nobody waits for is never completed')
            break
        time.sleep(0.01)


def rank_works_asynchronously(rank, workers):
    of = Rank(rank, workers, has_gloo=False)
    send_and_receive(of)
    keep_many_under_way(of)
    return of.wrong


def rank_trains(rank, workers):
    """Trains with the backend alone, then with the hook in the same job, then with a second default
    group."""
    of = Rank(rank, workers, has_gloo=False)
    trainer = test_ddp.Rank.beside(rank, workers)
    digests = [test_ddp.train(trainer)]
    hooked = test_ddp.Rank.beside(rank, workers)
    with test_ddp.attach(hooked):
        digests.append(test_ddp.train(hooked))
    del trainer, hooked
    of.dist.destroy_process_group()
    of.begin('second')
    digests.append(test_ddp.train(test_ddp.Rank.beside(rank, workers)))
    return digests


def rank_disagrees(rank, workers):
    """Ranks disagree about the number of elements of a first and of a later operation, about a
    root, and about the operation. Returns each error, and the error of the group's next
    operation."""
    of = Rank(rank, workers, has_gloo=False)
    watch, found = progress.Stopwatch(), []
    attempts = (lambda group: of.dist.all_reduce(of.torch.ones(5 + rank), group=group),
                lambda group: of.dist.broadcast(of.torch.ones(5), rank, group=group),
                lambda group: of.dist.all_reduce(of.torch.ones(5), (of.dist.ReduceOp.MIN,
                                                                    of.dist.ReduceOp.MAX)[rank],
                                                 group=group))
    groups = [of.dist.new_group(timeout=of.timeout) for _ in attempts]
    for attempt, group in zip(attempts, groups):
        group.timeout_s = SOON_S
        for call in (attempt, lambda group: of.dist.barrier(group=group)):
            found.append(raised_by(lambda: call(group))[:2])
    seconds = watch.seconds()
    lone, end = [of.dist.new_group(timeout=of.timeout) for _ in range(2)]
    lone.timeout_s = SOON_S
    if rank == 0:
        found.append(raised_by(lambda: of.dist.all_reduce(of.torch.ones(3), group=lone))[:2])
    of.dist.barrier(group=end)
    return found, seconds


def raised_by(call):
    watch = progress.Stopwatch()
    try:
        call()
    except Exception as error:
        return [type(error).__name__, str(error), watch.seconds()]
    return ['nothing', '', 0]


def rank_brings_another_known_size(rank, workers):
    """First a rank is late: the other rank logs its wait, but this is no disagreement. Then the
    sizes of the two ranks differ while this thread waits.

    Then the process's background thread finds disagreements: different operations in a queue, a
    size known to only one rank, messages instead of a tensor."""
    of = Rank(rank, workers, has_gloo=False)

    def sum_of(count, group):
        return of.dist.all_reduce(of.torch.ones(count), group=group, async_op=True)

    def gather(count, group):
        return of.dist.all_gather([of.torch.ones(count)] * workers, of.torch.ones(count),
                                  group=group, async_op=True)

    def scatter(count, group):
        return of.dist.scatter(of.torch.ones(count), [of.torch.ones(count)] * workers
                               if of.rank == 0 else None, group=group, async_op=True)

    groups = [of.dist.new_group(timeout=of.timeout) for _ in range(5)]
    for group in groups:
        for known in sum_of(6, group), sum_of(7, group), gather(8, group), scatter(6, group):
            known.wait()
    if rank == 1:
        time.sleep(3)
    late = raised_by(sum_of(6, groups[0]).wait)
    found = [raised_by(sum_of(6 + rank, groups[0]).wait)]
    works = [(sum_of, gather)[rank]((6, 8)[rank], groups[1]),
             sum_of(7 - rank, groups[2]),
             sum_of((6, 9)[rank], groups[3]),
             (sum_of, scatter)[rank](6, groups[4])]
    sum_of(8, groups[2])        # both ranks complete this operation
    for work in works:
        work.is_completed()     # from now on the background thread completes the operation
    found += [raised_by(work.wait) for work in works]
    return late, found


def rank_loses_the_other(rank, workers):
    of = Rank(rank, workers, has_gloo=False)
    of.dist.all_reduce(of.torch.ones(5))
    end_rank_1(of, 'done').set('done', '1')     # rank 0 has its result, too
    return [raised_by(call)[:2] for call in (
        lambda: of.dist.all_reduce(of.torch.ones(5)), lambda: of.dist.recv(of.torch.ones(5), 1),
        lambda: of.dist.all_reduce(of.torch.ones(5), async_op=True).wait())]


def end_rank_1(of, key):
    """Ends rank 1 when rank 0 has set the key. Returns the store of the keys."""
    store = of.dist.distributed_c10d._get_default_store()
    if of.rank == 1:
        store.wait([key], of.timeout)
        os._exit(0)
    return store


def lose_the_other_in_backward(rank, workers, compression=None):
    """Rank 1 ends after rank 0 has started all its operations. Returns the error of backward() on
    rank 0."""
    of = Rank(rank, workers, has_gloo=False)
    trainer = test_ddp.Rank.beside(rank, workers)
    if compression:
        from gradpool.compression_hook import compression_hook, CompressionState
        state = CompressionState(trainer.model, compression())
        trainer.model.register_comm_hook(state, compression_hook)
    for _ in range(2):
        trainer.step(trainer.batch())
    store = end_rank_1(of, 'begun')
    given = trainer.batch().requires_grad_()
    # runs after the hooks of all parameters
    given.register_hook(lambda _: store.set('begun', '1'))
    return raised_by(trainer.model(given * 1).sum().backward)


def rank_loses_the_other_in_backward(rank, workers):
    return lose_the_other_in_backward(rank, workers)


def rank_loses_the_other_in_compressed_backward(rank, workers):
    from gradpool.codecs import OneBit
    return lose_the_other_in_backward(rank, workers, OneBit)


def rank_is_refused(rank, workers):
    of = Rank(rank, workers, has_gloo=False)
    scaled_sum = of.torch._C._distributed_c10d._make_nccl_premul_sum
    ones, found = of.torch.ones(4), []
    for call in (lambda: of.dist.all_reduce(ones.int(), of.dist.ReduceOp.AVG),
                 lambda: of.dist.all_reduce(ones, of.dist.ReduceOp.BOR),
                 lambda: of.dist.all_reduce(ones.to_sparse(), of.dist.ReduceOp.MAX),
                 lambda: of.dist.all_to_all_single(ones, of.torch.ones(3)),
                 # torch 2 itself refuses this call
                 lambda: of.dist.group.WORLD.send([ones], rank, 0),
                 lambda: of.dist.reduce_scatter_tensor(ones[:2], ones, of.dist.ReduceOp.BOR),
                 lambda: of.dist.all_reduce(ones, scaled_sum(2.0)),
                 lambda: of.dist.all_reduce_coalesced([]),
                 lambda: of.dist.all_gather_coalesced([[]] * workers, []),
                 lambda: of.dist.all_to_all([ones] * workers, [ones[:3]] * workers)):
        found.append(raised_by(call)[:2])
    of.dist.all_reduce(ones)    # the refused calls must not have changed anything
    return found


def rank_has_no_place(rank, workers):
    """Uses results with several elements at one address, which is refused. Afterwards the group
    must work."""
    of = Rank(rank, workers, has_gloo=False)
    dist, one = of.dist, of.torch.ones(1)
    whole, place, halves = one.repeat(4), one.expand(4), [one.expand(2)] * workers
    calls = (lambda: dist.all_reduce(place),
             lambda: dist.all_reduce(one.int().expand(4), dist.ReduceOp.BOR),
             lambda: dist.reduce(place, 0),
             lambda: dist.all_reduce_coalesced([whole, place]),
             lambda: dist.reduce_scatter(place, [whole] * workers),
             lambda: dist.reduce_scatter_tensor(place, one.repeat(4 * workers)),
             lambda: dist.broadcast(place, 0),
             lambda: dist.all_gather([place] * workers, whole),
             lambda: dist.gather(whole, [place] * workers, rank),
             lambda: dist.all_gather_into_tensor(one.expand(4 * workers), whole),
             lambda: dist.all_gather_coalesced([[place]] * workers, [whole]),
             lambda: dist.scatter(place, None if rank else [whole] * workers, 0),
             lambda: dist.all_to_all(halves, list(whole.chunk(workers))),
             lambda: dist.all_to_all_single(place, whole),
             lambda: dist.recv(place),
             lambda: dist.recv(place, 1 - rank))
    found = [raised_by(call)[:2] for call in calls]
    dist.all_reduce(whole)
    works = [dist.isend(whole, 1 - rank), dist.irecv(place.clone(), 1 - rank)]
    return found, [work.wait() for work in works], whole.tolist()


class Distributed(python_case.Case):
    def run_ranks(self, function, workers=2, start=ranks.run_ranks):
        with tempfile.TemporaryDirectory() as folder:
            return start(function, workers, TEST_FOLDER=folder, TEST_STORE='',
                         GRADPOOL_JOB=self.id().rsplit('.', 1)[-1])

    def test_every_operation_has_the_results_of_gloo(self):
        self.assertEqual(self.run_ranks('rank_compares', 3), [[]] * 3)

    def test_two_ranks_exchange_messages_and_background_operations(self):
        self.assertEqual(self.run_ranks('rank_works_asynchronously'), [[]] * 2)

    def test_a_model_trains_to_the_same_bits_as_with_the_hook(self):
        for digests in self.run_ranks('rank_trains'):
            self.assertEqual(digests, [test_ddp.reference(2)] * 3)

    def test_ranks_that_disagree_get_an_error_within_the_timeout(self):
        for found, seconds in self.run_ranks('rank_disagrees'):
            if len(found) % 2:
                self.check_late(*found.pop())
            self.assertLess(seconds, 15)
            for first, later in zip(found[::2], found[1::2]):
                self.assertIn(first[0], ('Mismatch', 'Timeout'), first)
                self.assertIn('torch.distributed/', first[1])
                self.assertEqual(first, later)

    def check_late(self, kind, text):
        """Checks the timeout error of rank 0, which waited for rank 1."""
        self.assertEqual(kind, 'Timeout')
        self.assertIn('rank 1 (', text)
        self.assertIn('has joined, but has not pushed this tensor', text)
        self.assertIn('raise init_process_group(timeout=) or new_group(timeout=), now 2 s', text)

    def test_another_known_size_is_a_mismatch_soon_and_a_late_rank_is_not(self):
        brought = (('all_reduce of float32[6]', 'all_reduce of float32[7]'),
                   ('all_reduce of float32[6]', 'all_gather of float32[8]'),
                   ('all_reduce of float32[7]', 'all_reduce of float32[6]'),
                   ('all_reduce of float32[6]', 'all_reduce of float32[9]'),
                   ('all_reduce of float32[6]', 'scatter of float32[6]'))
        for late, found in self.run_ranks('rank_brings_another_known_size'):
            self.assertEqual(late[0], 'nothing', late)
            self.assertEqual(len(found), len(brought))
            for (kind, text, seconds), (ours, theirs) in zip(found, brought):
                self.assertEqual(kind, 'Mismatch', text)
                self.assertLess(seconds, 5)
                self.assertIn(f'rank 0 brought {ours}; rank 1 brought {theirs} as collective',
                              text)
                self.assertRegex(text, r"as collective \d+ of process group '")
                self.assertIn('All ranks of a group call the same collectives in the same order',
                              text)

    def test_a_rank_that_dies_is_named_to_the_others(self):
        found, _ = self.run_ranks('rank_loses_the_other', start=test_ddp.lose_rank_1)
        for kind, text in found:
            self.assertEqual(kind, 'PeerLost')
            self.assertIn('rank 1', text)

    def test_the_error_of_backward_names_a_dead_rank(self):
        for function in ('rank_loses_the_other_in_backward',
                         'rank_loses_the_other_in_compressed_backward'):
            (kind, text, _), _ = self.run_ranks(function, start=test_ddp.lose_rank_1)
            self.assertEqual(kind, 'RuntimeError', text)
            self.assertRegex(text, 'PeerLost: .*rank 1')

    def test_calls_without_sense_are_refused_at_once(self):
        words = ('has no mean; use ReduceOp.SUM', 'has no bitwise reduction',
                 'sparse tensors have no max: a missing element counts as 0 only in a sum or '
                 'a mean',
                 '3 torch.float32', r'from rank \d to rank \d of a group of ',
                 'reduction BOR of .* is not offered here; there are ', 'reduction PREMUL_SUM of',
                 'all_reduce_coalesced of no tensors', 'all_gather_coalesced of no tensors',
                 'a tensor of 3 .* beside one of 4 ')
        for found in self.run_ranks('rank_is_refused'):
            for word, (kind, text) in zip(words, found, strict=True):
                self.assertEqual(kind, 'Mismatch', text)
                self.assertRegex(text, word)

    def test_a_result_with_elements_at_one_address_is_refused_and_the_group_goes_on(self):
        for found, came, whole in self.run_ranks('rank_has_no_place'):
            for kind, text in found:
                self.assertEqual(kind, 'Mismatch', text)
                self.assertIn('expand()', text)
            self.assertEqual([came, whole], [[True, True], [2.0] * 4])

    def test_results_that_are_dropped_twice_are_found_while_a_reference_exists(self):
        import gradpool
        import torch
        from gradpool._group.operations import Operation
        group = types.SimpleNamespace(timeout_s=TIMEOUT_S, open=set(), failure=None)
        held = [torch.ones(3), torch.zeros(2)]
        operation = Operation(group, 'all_gather', [], held)
        self.assertEqual(len(operation.drop_results()), len(held))
        self.assertEqual(len(operation.drop_results()), 0)
        for found, mine in zip(operation.result(), held, strict=True):
            self.assertIs(found, mine)
        del found, mine, held[0]
        with ranks.expects(self, gradpool.Mismatch, 'all_gather: ',
                           'a result was freed, because the script did not hold it until'):
            operation.result()


if __name__ == '__main__':
    ranks.main(globals(), forks=True)
