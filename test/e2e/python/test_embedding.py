"""Tests gradpool.tables.Embedding: rows have the bits of torch's Embedding(sparse=True) with its
optimizers; each wrong call is an error that names the mistake."""
import copy
import os
import unittest

import numpy
import torch

import python_case
import ranks
import gradpool
from gradpool.tables import Embedding
from python_case import Case, setUpModule, tearDownModule  # noqa: F401

CLOCKS, KEYS, DIM = 12, 40, 7
# {rule: (optimizer of torch, lr, settings of both)}. In SGD and Adagrad torch fuses the product
# with lr and a sum. The bits are equal only if this product is exact, so lr is a power of two.
RULES = {'adam': (torch.optim.SparseAdam, 0.01, {'betas': (0.8, 0.99), 'eps': 1e-7}),
         'sgd': (torch.optim.SGD, 2 ** -5, {}),
         'adagrad': (torch.optim.Adagrad, 2 ** -4, {'eps': 1e-9})}


# ---- a training here and in torch ----

def keys_of(rank, clock):
    """Returns keys, each at most twice, because torch adds three gradients of a key in any
    order."""
    draw = torch.Generator().manual_seed(1000 * clock + rank)
    return torch.cat([torch.randperm(KEYS, generator=draw)[:15] for _ in range(2)]).reshape(6, 5)


def loss_of(rows, rank):
    return (rows * (rank + 0.3)).tanh().square().sum()


def sum_of(gradients):
    total = gradients[0].coalesce()
    for gradient in gradients[1:]:
        total = (total + gradient.coalesce()).coalesce()
    return torch.sparse_coo_tensor(total.indices(), total.values() / len(gradients), total.shape)


class Twin:
    """The same training in torch, with the gradients of all ranks in one process."""

    def __init__(self, rows, rule):
        kind, lr, settings = RULES[rule]
        self._module = torch.nn.Embedding.from_pretrained(rows.clone(), freeze=False, sparse=True)
        self._optimizer = kind(self._module.parameters(), lr=lr, **settings)

    def step(self, clock, workers):
        gradients = []
        for rank in range(workers):
            self._optimizer.zero_grad(set_to_none=True)
            loss_of(self._module(keys_of(rank, clock)), rank).backward()
            gradients.append(self._module.weight.grad)
        self._module.weight.grad = sum_of(gradients).coalesce()
        self._optimizer.step()

    def differences(self, rows):
        weight = self._module.weight.detach()
        return int((rows.numpy().view('u4') != weight.numpy().view('u4')).sum())


def rank_embeds(rank, workers):
    """Trains a table with each rule. Returns (values that differ from torch, values that have
    moved) of each."""
    job = gradpool.connect().join('embeds', rank, workers)
    modules, everything = {}, torch.arange(KEYS + 1)
    for rule, (_, lr, settings) in RULES.items():
        modules[rule] = Embedding(job.table(rule, DIM, rule, initial=('normal', 1), seed=3))
        modules[rule].table.set(lr, **settings)
    first = {rule: module.table.pull(everything) for rule, module in modules.items()}
    twins = {rule: Twin(rows, rule) for rule, rows in first.items()}
    wrong = dict.fromkeys(RULES, 0)
    for clock in range(CLOCKS):
        for module in modules.values():
            loss_of(module(keys_of(rank, clock)), rank).backward()
        job.clock()
        for rule, twin in twins.items():
            twin.step(clock, workers)
            wrong[rule] += twin.differences(modules[rule].table.pull(everything))
    job.barrier()
    moved = {rule: int((modules[rule].table.pull(everything) != first[rule]).sum())
             for rule in RULES}
    job.leave()
    return [wrong, moved]


def rank_trains_beside_ddp(rank, workers):
    """Trains an embedding in a model of DistributedDataParallel, in one job."""
    import torch.distributed as dist
    import gradpool.ddp
    dist.init_process_group('gloo', init_method=f"file://{os.environ['TEST_STORE']}",
                            rank=rank, world_size=workers)
    torch.manual_seed(rank)
    job = gradpool.connect().join('beside', rank, workers)
    table = job.table('rows', 4, initial=('uniform', 0.5))
    table.set(0.5)
    net = torch.nn.Sequential(Embedding(table), torch.nn.Linear(4, 1))
    model = torch.nn.parallel.DistributedDataParallel(net)
    attachment = gradpool.ddp.attach(model, job=job)
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    losses = []
    for _ in range(30):
        keys = torch.randint(20, (16,))
        optimizer.zero_grad()
        loss = (model(keys).squeeze(1) - (keys % 2)).square().mean()
        loss.backward()
        optimizer.step()
        job.clock()
        losses.append(loss.item())
    job.barrier()
    rows = table.pull(torch.arange(20))
    attachment.close()
    job.leave()
    return losses, rows.tolist(), net[1].weight.tolist()


class Bits(Case):
    """These tests run first. Ranks are forks of this process, and after a backward() in this
    process torch 2 cannot run backward() in a fork."""

    def check(self, workers):
        for wrong, moved in ranks.run_ranks('rank_embeds', workers):
            self.assertEqual(wrong, dict.fromkeys(RULES, 0))
            self.assertEqual(moved, dict.fromkeys(RULES, KEYS * DIM))

    def test_rows_of_one_worker_have_the_bits_of_torch(self):
        self.check(1)

    def test_rows_of_two_workers_have_the_bits_of_torch(self):
        self.check(2)

    def test_rows_of_three_workers_have_the_bits_of_torch(self):
        self.check(3)

    def test_a_model_of_ddp_trains_with_an_embedding_in_one_job(self):
        store = python_case.service.folder / 'beside.store'
        found = ranks.run_ranks('rank_trains_beside_ddp', 2, TEST_STORE=str(store))
        for losses, *_ in found:
            self.assertLess(numpy.mean(losses[-5:]), 0.5 * numpy.mean(losses[:5]), losses)
        self.assertEqual(found[0][1:], found[1][1:])


class Calls(Case):
    def embedding(self, **options):
        job = self.join()
        table = job.table('t', 2, **options)
        table.set(1.0)
        return job, Embedding(table)

    def test_rows_have_the_shape_of_the_keys(self):
        _, module = self.embedding(initial=0.5)
        for shape in (), (3,), (2, 0), (2, 3):
            rows = module(torch.zeros(shape, dtype=torch.int32))
            self.assertEqual((rows.shape, rows.dtype), ((*shape, 2), torch.float32))
            self.assertTrue(rows.requires_grad)
            rows.sum().backward()

    def test_an_unchanged_loop_of_torch_has_the_same_bits(self):
        job = self.join()
        ours = Embedding(job.table('t', DIM, 'adam', initial=('normal', 1)))
        ours.table.set(0.01)
        theirs = torch.nn.Embedding.from_pretrained(ours.table.pull(torch.arange(KEYS)),
                                                    freeze=False, sparse=True)
        optimizer = torch.optim.SparseAdam(theirs.parameters(), lr=0.01)
        for clock in range(CLOCKS):
            for module in ours, theirs:
                loss_of(module(keys_of(0, clock)), 0).backward()
            optimizer.step()
            optimizer.zero_grad()
            job.clock()
        self.assertEqual(ours.table.pull(torch.arange(KEYS)).numpy().tobytes(),
                         theirs.weight.detach().numpy().tobytes())

    def test_passes_of_one_clock_add_up(self):
        job, module = self.embedding()
        keys = torch.tensor([1, 2, 1])
        loss = module(keys).sum()
        loss.backward(retain_graph=True)
        loss.backward()
        (3 * module(keys[:1])).sum().backward()
        self.assertEqual(module(keys).tolist(), [[0, 0]] * 3)
        job.clock()
        self.assertEqual(module(keys).tolist(), [[-7, -7], [-2, -2], [-7, -7]])

    def test_a_penalty_of_a_gradient_reaches_the_rows(self):
        job, module = self.embedding(initial=0.5)
        weight = torch.ones(1, requires_grad=True)
        loss = (module(torch.tensor([1])) * weight).square().sum()
        # the gradient of `weight` is the sum of 2 * row ** 2
        torch.autograd.grad(loss, weight, create_graph=True)[0].backward()
        job.clock()
        self.assertEqual(module(torch.tensor([1])).tolist(), [[-1.5, -1.5]])

    def test_without_a_gradient_a_pass_pushes_nothing(self):
        job, module = self.embedding()
        with torch.no_grad():
            rows = module(torch.tensor([1]))
        with torch.inference_mode():
            module(torch.tensor([1]))
        module(torch.tensor([1]))
        frozen = module.requires_grad_(False)(torch.tensor([1]))
        for pulled in rows, frozen:
            with self.raises(RuntimeError, 'does not require grad'):
                pulled.sum().backward()
        module.requires_grad_()
        job.clock()
        self.assertEqual(module(torch.tensor([1])).tolist(), [[0, 0]])

    def test_the_module_has_no_parameters_and_no_state(self):
        _, module = self.embedding()
        self.assertEqual((list(module.parameters()), list(module.buffers()), module.state_dict()),
                         ([], [], {}))
        self.assertIn("'t', dim=2, rule='sgd'", repr(module))


class Refusals(Case):
    def test_keys_that_are_invalid_are_refused(self):
        module = Embedding(self.join().table('t', 2, keys=10))
        for keys, *words in (
                (numpy.zeros(3, int), 'a ndarray', 'Embedding needs a torch tensor'),
                (torch.zeros(3), 'dtype float32', 'expected whole numbers'),
                (torch.zeros(3, dtype=torch.bool), 'dtype bool'),
                (torch.tensor([[0, 1], [2, -3]]), 'key -3 at position 3'),
                (torch.tensor([10]), 'key 10 at position 0', 'keys below 10'),
                (torch.zeros(3, dtype=int, device='meta'), 'on device meta', 'call cpu() first'),
                (torch.zeros(3, dtype=int).to_sparse(),
                 'expected a dense tensor; call to_dense()')):
            with self.subTest(words[0]), self.raises(gradpool.Mismatch, "table 't'", *words):
                module(keys)

    def test_gradients_of_another_kind_are_refused(self):
        table = self.join().table('t', 2)
        ones = torch.ones(3, 2)
        for gradients, *words in (
                (ones.half(), 'torch.float16, expected torch.float32', 'call to(torch.float32)'),
                (ones.long(), 'torch.int64, expected torch.float32'),
                (ones.to('meta'), 'on device meta', 'call cpu() first'),
                (ones.to_sparse(), 'expected a dense tensor; call to_dense()'),
                (torch.ones(2, 3).t(), 'not contiguous', 'call contiguous()'),
                (torch.ones(6), 'shape (6,), expected (3, 2)')):
            with self.subTest(words[0]), self.raises(gradpool.Mismatch,
                                                     "gradients of table 't'", *words):
                table.push(torch.arange(3), gradients)

    def test_an_embedding_has_a_table(self):
        with self.raises(gradpool.Mismatch, "Embedding of 10", 'call job.table() first'):
            Embedding(10)

    def test_keys_that_change_before_backward_are_refused(self):
        job = self.join()
        module = Embedding(job.table('t', 2))
        keys = torch.tensor([1, 2])
        loss = module(keys).sum()
        keys += 1
        with self.raises(RuntimeError, 'modified by an inplace operation'):
            loss.backward()
        job.clock()
        self.assertEqual(module(keys).tolist(), [[0, 0]] * 2)

    def test_backward_after_the_job_was_left_is_refused(self):
        job = self.join()
        module = Embedding(job.table('t', 2))
        loss = module(torch.tensor([1])).sum()
        job.leave()
        with self.raises(gradpool.GradpoolError, 'closed'):
            loss.backward()

    def test_gradients_that_are_not_finite_are_an_error_of_a_clock(self):
        job = self.join()
        module = Embedding(job.table('t', 2))
        module.table.set(0.1)
        (module(torch.tensor([4])) * float('inf')).sum().backward()
        self.assertRegex(str(self.error_of_clock(job)), "table 't'.* key 4")

    def test_a_copy_of_the_module_is_refused(self):
        module = torch.nn.Sequential(Embedding(self.join().table('t', 2)))
        with self.raises(gradpool.Mismatch, "table 't'", 'cannot be copied or pickled'):
            copy.deepcopy(module)


if __name__ == '__main__':
    ranks.main(globals(), forks=True)
