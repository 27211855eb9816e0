"""Changes the length of a tensor in each call, with the backend and with Horovod's calls. The bits
must equal those of one process. The job must not declare a tensor for every length."""
import datetime
import os
import tempfile

import python_case
import ranks
from python_case import setUpModule, tearDownModule     # noqa: found by name
from torch_door_calls import Rank

TIMEOUT_S = 60
# The first lengths have their own tensors. The other lengths are composed of pieces of each size,
# with and without a rest.
LENGTHS = (1, 3, 63, 64, 65, 4095, 4096, 4097, 131071, 12287, 12288, 8000, 8292, 8392, 8592, 8992,
           9692, 2, 65536, 70001)


class Group(Rank):
    """The same process, used as a rank of torch.distributed."""

    def __init__(self, rank, workers):
        super().__init__(rank, workers)
        import torch.distributed as dist
        import gradpool.distributed
        self.dist = dist
        dist.init_process_group('gradpool', rank=rank, world_size=workers,
                                init_method=f"file://{os.environ['TEST_FOLDER']}/store",
                                timeout=datetime.timedelta(seconds=TIMEOUT_S))

    def drawn(self, length, dtype='float32', turn=0):
        """Returns values of each rank. Their sum depends on the order."""
        torch, found = self.torch, []
        for rank in range(self.workers):
            chosen = torch.Generator().manual_seed(1000 * turn + 100 * rank + length)
            values = torch.randn(length, generator=chosen) * 100
            found.append(values.to(self.device, getattr(torch, dtype)))
        return found


def count_declarations(of):
    """Yields a list, to which each name declared in this process is appended."""
    from gradpool.client import Job
    declare_all, names = Job.declare_all, []

    def declare(self, elements_by_name, *arguments, **options):
        names.extend(elements_by_name)
        return declare_all(self, elements_by_name, *arguments, **options)
    Job.declare_all = declare
    return names


def sum_of(every):
    """Returns the sum in rank order. Halves are added as float32."""
    first, *others = [one.float() if one.element_size() == 2 else one for one in every]
    return sum(others, first).to(every[0].dtype)


def compare_collectives(of, length, dtype):
    dist, torch, every = of.dist, of.torch, of.drawn(length, dtype)
    mine, said = every[of.rank], f'{length} {dtype}'
    found = mine.clone()
    dist.all_reduce(found)
    of.expect(f'all_reduce {said}', found, sum_of(every))
    found = mine.clone()
    dist.all_reduce(found, op=dist.ReduceOp.MAX)
    of.expect(f'max {said}', found, torch.stack(every).amax(0))
    found = mine.clone()
    dist.reduce(found, 1)
    of.expect(f'reduce {said}', found, sum_of(every) if of.rank == 1 else mine)
    dist.broadcast(found, 0)
    of.expect(f'broadcast {said}', found, every[0])
    found = [torch.empty_like(mine) for _ in every]
    dist.all_gather(found, mine)
    of.expect(f'all_gather {said}', found, every)
    wide = of.drawn(of.workers * length, dtype)
    found = torch.empty_like(mine)
    dist.reduce_scatter(found, list(wide[of.rank].chunk(of.workers)))
    of.expect(f'reduce_scatter {said}', found, sum_of(wide).chunk(of.workers)[of.rank])
    found = torch.empty_like(wide[of.rank])
    dist.all_to_all_single(found, wide[of.rank])
    of.expect(f'all_to_all {said}', found,
              torch.cat([one.chunk(of.workers)[of.rank] for one in wide]))


def compare_many_at_once(of):
    """Runs many operations at once. The number of free pieces may change while messages are sent.
    The results must not change."""
    dist, turns = of.dist, range(3)
    every = {(length, turn): of.drawn(length, turn=turn) for turn in turns for length in LENGTHS}
    mine = {key: of_ranks[of.rank].clone() for key, of_ranks in every.items()}
    works = [dist.all_reduce(tensor, async_op=True) for tensor in mine.values()]
    for work in works[::-1]:
        work.wait()
    for key, tensor in mine.items():
        of.expect(f'{key} among others', tensor, sum_of(every[key]))


def rank_changes_lengths(rank, workers):
    of = Group(rank, workers)
    for dtype in 'float32', 'bfloat16', 'float64':
        for length in LENGTHS:
            compare_collectives(of, length, dtype)
    compare_many_at_once(of)
    names = count_declarations(of)
    for length in range(90000, 99000, 777):
        compare_collectives(of, length, 'float32')
    of.expect_true(f'declared for new lengths: {names}', not names)
    for _ in range(40):
        of.dist.all_reduce(of.torch.ones(88888))
    of.expect_true(f'declared for one that recurs: {names}', len(names) == 1)
    told = of.raised(lambda: of.dist.all_reduce(of.torch.ones(5000 + rank)))
    return of.wrong, told


def compare_calls(of, length, name=None):
    hvd, torch, every = of.hvd, of.torch, of.drawn(length)
    mine, said = every[of.rank], f'{length} {name}'
    of.expect(f'allreduce {said}', hvd.allreduce(mine, op=hvd.Sum, name=name), sum_of(every))
    of.expect(f'broadcast {said}', hvd.broadcast(mine, 1, name=name and 'copied'), every[1])
    both = [[one, one[:length // 3].double()] for one in every]
    of.expect(f'a group of {said}', hvd.grouped_allreduce(
        both[of.rank], op=hvd.Sum, name=name and 'group'), map(sum_of, zip(*both)))
    rows = [one[:length - length // (rank + 2)].view(-1, 1).expand(-1, length % 7 + 1)
            for rank, one in enumerate(every)]
    of.expect(f'allgather {said}', hvd.allgather(rows[of.rank], name=name and 'rows'),
              torch.cat(rows))
    wide = of.drawn(of.workers * length + 1)
    dealt = [length + 1] + [length] * (of.workers - 1)
    of.expect(f'reducescatter {said}', hvd.reducescatter(wide[of.rank], op=hvd.Sum,
                                                         name=name and 'dealt'),
              sum_of(wide).split(dealt)[of.rank])
    given = [one[:of.workers * length].view(of.workers * length, 1) for one in wide]
    of.expect(f'alltoall {said}', hvd.alltoall(given[of.rank], name=name and 'swapped'),
              torch.cat([one.chunk(of.workers)[of.rank] for one in given]))


def rank_changes_shapes(rank, workers):
    of = Group(rank, workers)
    hvd, ones = of.hvd, of.torch.ones
    for name in None, 'one name':
        for length in LENGTHS:
            compare_calls(of, length, name)
    names = count_declarations(of)
    for name in None, 'one name':
        for length in range(90000, 98000, 1777):
            every = of.drawn(length)
            of.expect('known pieces', hvd.allreduce(every[rank], op=hvd.Sum, name=name),
                      sum_of(every))
    of.expect_true(f'declared for new lengths: {names}', not names)
    every = {length: of.drawn(length, turn=1) for length in LENGTHS}
    handles = {length: hvd.allreduce_async(of_ranks[rank], op=hvd.Sum)
               for length, of_ranks in every.items()}
    for length in LENGTHS[::-1]:
        of.expect('among others', handles[length].wait(), sum_of(every[length]))
    told = []
    for name in None, 'one name':
        told.append(of.raised(lambda: hvd.allreduce(ones(6000 + rank), name=name)))
        hvd.allreduce(ones(7000), name=name)        # the failed call must not have an effect
    return of.wrong, told


class Lengths(python_case.Case):
    def run_ranks(self, function, workers):
        with tempfile.TemporaryDirectory(prefix='gradpool-lengths-') as folder:
            return ranks.run_ranks(function, workers, TEST_FOLDER=folder,
                                   GRADPOOL_TIMEOUT_MS=str(1000 * TIMEOUT_S),
                                   GRADPOOL_JOB=self.id().rsplit('.', 1)[-1])

    def test_lengths_that_change_give_the_same_bits_without_declarations(self):
        for wrong, (kind, text) in self.run_ranks('rank_changes_lengths', 3):
            self.assertEqual(wrong, [])
            self.assertEqual(kind, 'Mismatch', text)
            self.assertIn(' as a collective of process group ', text)
            for rank in range(3):
                self.assertIn(f'rank {rank} brought all_reduce of float32[{5000 + rank}]', text)

    def test_shapes_may_change_from_call_to_call_with_horovod_s_calls(self):
        for wrong, told in self.run_ranks('rank_changes_shapes', 2):
            self.assertEqual(wrong, [])
            for kind, text in told:
                self.assertEqual(kind, 'Mismatch', text)
                for rank in range(2):
                    self.assertIn(f'rank {rank} brought allreduce (Average) of '
                                  f'float32[{6000 + rank}]', text)


if __name__ == '__main__':
    ranks.main(globals(), forks=True)
