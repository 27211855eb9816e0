"""Tests jobs in which ranks of a former job train together with new ranks. Also tests several
successive jobs of the same name. An earlier job of a process must not change which job the process
joins next."""
import os
import tempfile
import unittest

import ranks
from python_case import setUpModule, tearDownModule     # noqa: found by name


def sum_by_horovods_calls(rank, workers, name='x'):
    import torch
    import gradpool.torch as hvd
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(workers))
    hvd.init()
    total = hvd.allreduce(torch.ones(1) * (rank + 1), op=hvd.Sum, name=name).item()
    hvd.shutdown()
    return total


def sum_by_torchs_calls(rank, workers, store):
    import torch
    import torch.distributed as dist
    import gradpool.distributed     # noqa: registers the backend
    dist.init_process_group('gradpool', rank=rank, world_size=workers,
                            init_method=f"file://{os.environ['TEST_FOLDER']}/{store}")
    total, part = torch.ones(1) * (rank + 1), torch.ones(1) * (rank + 1)
    dist.all_reduce(total)
    dist.all_reduce(part, group=dist.new_group(sorted({0, workers - 1})))
    dist.destroy_process_group()
    return [total.item(), part.item()]


def rank_zero_has_trained_before(rank, workers):
    if rank == 0:
        name = os.environ['GRADPOOL_JOB']
        os.environ['GRADPOOL_JOB'] = f'{name} before'
        sum_by_horovods_calls(0, 1)
        os.environ['GRADPOOL_JOB'] = name
    return sum_by_horovods_calls(rank, workers)


def rank_trains_again_and_again(rank, workers):
    return [sum_by_horovods_calls(rank, workers, f'x{turn}') for turn in range(5)]


def rank_trains_again_beside_another_user(rank, workers):
    """Runs in a process that already has an attached model. The job of this model continues: the
    process does not join it again."""
    from gradpool._process import membership
    other = membership.join(None, None, rank, workers)
    totals = [sum_by_horovods_calls(rank, workers, 'x') for _ in range(5)]
    other.release()
    return totals


def rank_zero_had_a_group_before(rank, workers):
    if rank == 0:
        sum_by_torchs_calls(0, 1, 'alone')
    return sum_by_torchs_calls(rank, workers, 'store')


def rank_has_group_after_group_in_one_store(rank, workers):
    """Sets the variables that torchrun sets. With such a store, older torch versions continue
    the count of the previous group's barrier."""
    import torch
    import torch.distributed as dist
    import gradpool.distributed     # noqa: registers the backend
    dist.distributed_c10d._store_based_barrier = lambda *_: None
    store = dist.FileStore(f"{os.environ['TEST_FOLDER']}/agent", workers)
    kept, totals = [], []
    for turn in range(3):
        dist.init_process_group('gradpool', rank=rank, world_size=workers, store=store)
        # a model may keep a reference to the group and thereby to the former job
        kept.append(dist.group.WORLD)
        totals.append(torch.ones(1) * (rank + turn))
        dist.all_reduce(totals[-1])
        dist.destroy_process_group()
    return [total.item() for total in totals]


class Rejoin(unittest.TestCase):
    def run_ranks(self, function, workers, **environment):
        with tempfile.TemporaryDirectory(prefix='gradpool-rejoin-') as folder:
            return ranks.run_ranks(function, workers, TEST_FOLDER=folder, **environment)

    def test_a_new_rank_trains_with_a_rank_that_has_trained_before(self):
        self.assertEqual(self.run_ranks('rank_zero_has_trained_before', 2, GRADPOOL_JOB='pool'),
                         [3.0, 3.0])

    def test_jobs_of_one_name_follow_each_other(self):
        self.assertEqual(self.run_ranks('rank_trains_again_and_again', 3, GRADPOOL_JOB='turns'),
                         [[6.0] * 5] * 3)

    def test_a_job_with_another_user_in_the_process_continues(self):
        self.assertEqual(
            self.run_ranks('rank_trains_again_beside_another_user', 2, GRADPOOL_JOB='shared'),
            [[3.0] * 5] * 2)

    def test_a_new_rank_trains_with_a_rank_that_had_a_default_group_before(self):
        self.assertEqual(
            self.run_ranks('rank_zero_had_a_group_before', 3, GRADPOOL_JOB='groups'),
            [[6.0, 4.0], [6.0, 2.0], [6.0, 4.0]])

    def test_default_groups_follow_each_other_in_one_store_without_a_name(self):
        self.assertEqual(self.run_ranks('rank_has_group_after_group_in_one_store', 2),
                         [[1.0, 3.0, 5.0]] * 2)


if __name__ == '__main__':
    ranks.main(globals(), forks=True)
