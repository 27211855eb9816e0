"""Tests models of many small parameters with gradpool.ddp.attach(). Neighbouring gradients in a
bucket are sent as one tensor (a pack). The results must have the bits of separately sent
tensors."""
import gc
import sys
import unittest.mock

import harness
import ranks
import test_ddp
from test_ddp import setUpModule, tearDownModule     # noqa: found by name
from test_scripts import job_has, settle

DEEP = 30       # number of layers
NOT_ONE = 10 ** 9
VIEWS = {'gradient_as_bucket_view': True}
# Each way has options of DistributedDataParallel, options of attach(), and a value of MOVED_BYTES.
WAYS = (({}, {}, 0), (VIEWS, {}, 0), (VIEWS, {}, NOT_ONE), ({}, {'wire': 'float16'}, 0),
        ({'static_graph': True}, {}, 0), ({'find_unused_parameters': True}, {}, 0))


class Deep(test_ddp.Rank):
    """A model of small layers with two large layers between them."""

    def make_net(self):
        nn = self.torch.nn
        layers = [nn.Linear(16, 8)]
        for i in range(DEEP):
            layers += [nn.Linear(8, 4096), nn.Linear(4096, 8)] if i == DEEP // 2 else []
            layers += [nn.Linear(8, 8), nn.Tanh()]
        return nn.Sequential(*layers)

    def pushes_of(self, attachment, train):
        """Returns the result of train(self), and the names of the tensors in each push_items()."""
        push_items, names = attachment.job.push_items, []

        def note(tensors, *arguments):
            names.append([tensor.name for tensor in tensors])
            return push_items(tensors, *arguments)
        with unittest.mock.patch.object(attachment.job, 'push_items', note):
            return train(self), names


def fewest(count):
    from gradpool._model import bucket_packs
    return unittest.mock.patch.object(bucket_packs, 'FEWEST', count)


def moved(size):
    from gradpool._model import buckets
    return unittest.mock.patch.object(buckets, 'MOVED_BYTES', size)


def is_pack(name):
    return ' more (bucket ' in name


def packs_of(job):
    return [tensor.name for tensor in job.tensors() if is_pack(tensor.name)]


def rank_trains(rank, workers):
    """Trains in each way. Returns digests with packs, digests with separate parameters, and names
    in the last step."""
    first, found = Deep(rank, workers), []
    for options, how, size in WAYS:
        digests = []
        for few in 8, NOT_ONE:
            trainer = Deep.beside(rank, workers, **options)
            with fewest(few), moved(size), test_ddp.attach(trainer, **how) as attachment:
                digest, names = trainer.pushes_of(attachment, test_ddp.train)
                digests.append(digest)
                if few == 8:
                    last = names[len(names) - len(attachment._buckets):]
                    now = sorted(name for push in last for name in push if is_pack(name))
                    harness.until(lambda: sorted(packs_of(attachment.job)) == now,
                                  'packs of the first buckets are given back')
                    counts = len(sum(last, [])), len(now)
        found.append([digests, counts])
    first.torch.distributed.barrier()
    return found


def rank_accumulates(rank, workers):
    """Makes two backward passes in a step. The ranks use different layers."""
    class Skips(Deep):
        skipped = False

        def make_net(self):
            net = super().make_net()
            net[1].register_forward_hook(
                lambda _, given, made: given[0] if self.skipped else made)
            return net

    def accumulate(trainer):
        for step in range(test_ddp.STEPS):
            trainer.skipped = (rank + step) % 2
            with trainer.model.no_sync():
                trainer.model(trainer.batch()).square().mean().backward()
            trainer.step(trainer.batch())
        return trainer.digest()
    Deep(rank, workers)
    digests = []
    for few in 8, NOT_ONE:
        trainer = Skips.beside(rank, workers, find_unused_parameters=True)
        with fewest(few), test_ddp.attach(trainer):
            digests.append(accumulate(trainer))
    return digests


def rank_runs_out(rank, workers):
    """All gradients of a rank are its number plus 1. After one of the two ranks has left, each
    mean is halved."""
    trainer = Deep(rank, workers)
    torch = trainer.torch
    from torch.distributed.algorithms.join import Join
    found = []
    for are_views in False, True:
        class Sums(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.all = torch.nn.ParameterList(torch.nn.Parameter(torch.ones(7))
                                                  for _ in range(3000))

            def forward(self, factor):
                return torch.stack(list(self.all)).sum() * factor
        model = torch.nn.parallel.DistributedDataParallel(Sums(), bucket_cap_mb=0.02,
                                                          gradient_as_bucket_view=are_views)
        with test_ddp.attach(unittest.mock.Mock(model=model)) as attachment:
            for batches in (0, 2), (3, 1), (2, 2):
                with Join([model]):
                    for _ in range(batches[rank]):
                        model.zero_grad()
                        model(rank + 1.0).backward()
                        found.append(sorted({value for one in model.module.all
                                             for value in one.grad.tolist()}))
            assert packs_of(attachment.job)
    return found


def rank_drops(rank, workers):
    """Makes a hundred models in one script. Closes half of them, and drops the other half."""
    trainer, first = Deep(rank, workers), []
    torch = trainer.torch
    for count in range(100):
        net = torch.nn.Sequential(*[torch.nn.Linear(2, 2) for _ in range(5)])
        model = torch.nn.parallel.DistributedDataParallel(net)
        attachment = test_ddp.attach(unittest.mock.Mock(model=model))
        for _ in range(2):
            model(torch.ones(1, 2)).sum().backward()
        assert packs_of(attachment.job)
        if count % 2:
            attachment.close()
        net = model = attachment = None
        gc.collect()
        if count in (20, 60, 99):
            harness.until(lambda: job_has(0), 'tensors are given back')
            settle(first)
    return True


def rank_times_out(rank, workers):
    """Makes the packs of rank 1 differ from those of rank 0, as different buckets would. Returns
    the error of rank 0."""
    trainer, text = Deep(rank, workers), 'no error'
    with fewest(8 if rank == 0 else NOT_ONE):
        test_ddp.attach(trainer, timeout_ms=2000)
        try:
            trainer.step(trainer.batch())
        except RuntimeError as error:
            text = str(error)
    if rank == 1:
        sys.stdin.readline()
    return text


def rank_has_joined(rank, workers):
    """Joins a job by name. Each rank has a DDP of one rank, so their buckets may differ."""
    import gradpool
    import torch.distributed as dist
    trainer = Deep(rank, workers)
    alone = [dist.new_group([one]) for one in range(workers)]
    trainer = Deep.beside(rank, workers, process_group=alone[rank])
    with gradpool.connect() as client, client.join('alone', rank, workers) as job:
        with test_ddp.attach(trainer, job=job) as attachment:
            digest = test_ddp.train(trainer)
            return digest, packs_of(attachment.job)


class Runs(test_ddp.Case):
    def test_packs_give_the_bits_of_parameters_alone(self):
        with unittest.mock.patch.object(test_ddp, 'Rank', Deep):
            wanted = test_ddp.reference(2)
        first, second = self.run_ranks('rank_trains')
        self.assertEqual(first, second)
        for (*way, _), (digests, (travelling, packs)) in zip(WAYS, first):
            self.assertEqual(len(set(digests)), 1, way)
            self.assertGreater(packs, 0)
            self.assertLess(travelling, DEEP)
            self.assertEqual(digests[0] == wanted, not way[1], way)

    def test_unused_parameters_and_several_passes_change_no_bit(self):
        found = sum(self.run_ranks('rank_accumulates'), [])
        self.assertEqual(len(set(found)), 1, found)

    def test_a_rank_that_has_left_the_loop_brings_zeros(self):
        first, second = self.run_ranks('rank_runs_out')
        self.assertEqual(first, ([[1.5]] + [[0.5]] * 2 + [[1.5]] * 2) * 2)
        self.assertEqual(second, ([[1]] * 2 + [[1.5]] * 3) * 2)

    def test_a_hundred_models_leave_nothing(self):
        self.assertEqual(self.run_ranks('rank_drops'), [True, True])

    def test_the_error_of_different_packs_names_a_parameter(self):
        text, other = self.run_ranks('rank_times_out', start=test_ddp.release_rank_1)
        self.assertRegex(text, r"tensor '\d+\.(weight|bias) and \d+ more "
                         r"\(bucket 0, [0-9a-f]{16}\)'")
        self.assertIn('rank 1', text)
        self.assertIn('rank 0', other)

    def test_a_job_of_the_script_has_no_packs(self):
        with unittest.mock.patch.object(test_ddp, 'Rank', Deep):
            wanted = test_ddp.reference(2)
        self.assertEqual(self.run_ranks('rank_has_joined'), [[wanted, []]] * 2)


if __name__ == '__main__':
    ranks.main(globals(), forks=True)
