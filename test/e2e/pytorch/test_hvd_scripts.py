"""Compares typical scripts with hvd.DistributedOptimizer with plain torch. Each rank runs one list
of calls."""
import copy
import gc
import io
import json
import os
import pickle
import subprocess
import traceback
import unittest
import warnings
import weakref

import harness
import ranks
from python_case import setUpModule, tearDownModule     # noqa: found by name
from torch_door_calls import Rank
from torch_door_values import compare_changes_of_every_kind_of_gradient, halve

WORKERS = 2
TIMEOUT_MS = 60000
FOLDS = 100


def wrap(of, net, rate=1.0, kind=None, **options):
    optimizer = (kind or of.torch.optim.SGD)(net.parameters(), rate)
    return of.hvd.DistributedOptimizer(optimizer, net.named_parameters(), **options)


def linear(of, columns=2, rows=1):
    net = of.torch.nn.Linear(columns, rows, bias=False)
    of.torch.nn.init.ones_(net.weight)
    return net


def descend(of, net, optimizer):
    """Makes one step. On rank r all gradients of a linear() are r + 1, so the mean is 1.5."""
    optimizer.zero_grad()
    net(of.torch.full((1, net.in_features), of.rank + 1.)).sum().backward()
    optimizer.step()


def expect_weight(of, what, net, value):
    of.expect_true(f'{what}: {net.weight}, not {value}', of.torch.allclose(
        net.weight, of.torch.full_like(net.weight, value), atol=1e-5))


def expect_replicas(of, what, tensor):
    every = of.hvd.allgather(tensor.detach().reshape(1, -1), name='replicas of ' + what)
    of.expect_true(f'{what} differs: {every}', bool((every == every[:1]).all()))


# ---- objects made before the optimizer is wrapped ----

def compare_schedulers(of):
    """Schedulers must change the wrapped optimizer."""
    torch, hvd = of.torch, of.hvd
    for is_made_after in False, True:
        net = linear(of)
        bare = torch.optim.SGD(net.parameters(), 1.0, momentum=0.5)
        group, state = bare.param_groups[0], bare.state
        make = torch.optim.lr_scheduler.StepLR
        schedulers = [] if is_made_after else [make(bare, 1, gamma=0.5)]
        optimizer = hvd.DistributedOptimizer(bare, net.named_parameters())
        if is_made_after:
            schedulers = [make(bare, 1, gamma=0.5)]
            warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
        hvd.broadcast_optimizer_state(optimizer, 0)
        of.expect_true('groups and state stay', optimizer.param_groups[0] is group
                       and optimizer.state is state)
        with warnings.catch_warnings():
            # a scheduler warns if it did not detect a step
            warnings.simplefilter('error')
            for _ in range(3):
                descend(of, net, optimizer)
                schedulers[0].step()
        rate = optimizer.param_groups[0]['lr']
        of.expect_true(f'rate {rate}', rate == group['lr'] == bare.param_groups[0]['lr'] == 0.125)
        saved = copy.deepcopy(optimizer.state_dict())
        for loaded in bare, optimizer:
            loaded.load_state_dict(saved)
            schedulers[0].step()
            of.expect_true('rate after load_state_dict()', optimizer.param_groups[0]['lr'] ==
                           0.125 / 2 and len(optimizer.state) == 1)
            schedulers[0].last_epoch -= 1
        if is_made_after:
            warm_up.step()
        expect_replicas(of, f'scheduled {is_made_after}', net.weight)


class Scaler:
    """A replacement for torch's GradScaler, which needs a GPU."""

    def scale(self, loss):
        return loss * 8

    def unscale_(self, optimizer):
        for group in optimizer.param_groups:
            for parameter in group['params']:
                parameter.grad.mul_(1 / 8)


def compare_scaling_and_clipping(of):
    torch = of.torch
    net, scaler = linear(of), Scaler()
    bare = torch.optim.SGD(net.parameters(), 1.0)
    optimizer = of.hvd.DistributedOptimizer(bare, net.named_parameters(), op=of.hvd.Sum)

    def backward():
        optimizer.zero_grad()
        scaler.scale(net(torch.full((1, 2), of.rank + 1.)).sum()).backward()
    def skip_to_step():
        with optimizer.skip_synchronize():
            optimizer.step()
    backward()
    optimizer.synchronize()
    scaler.unscale_(bare)
    torch.nn.utils.clip_grad_norm_(net.parameters(), 2 ** 0.5)
    skip_to_step()
    expect_weight(of, 'clipped', net, 0.0)      # exact up to 1e-6, which clipping adds to the norm
    backward()
    of.expect_true('too early', 'before step() or synchronize()' in of.raised(skip_to_step)[1])
    optimizer.synchronize()
    scaler.unscale_(bare)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter('always')
        optimizer.step()    # uses the sum of the first step()
    of.expect_true('told', 'skip_synchronize()' in str(told[0].message))
    expect_weight(of, 'summed once', net, -3.0)
    for change in (lambda: scaler.unscale_(bare),
                   lambda: torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0),
                   lambda: torch.nn.utils.clip_grad_value_(net.parameters(), 1e-3),
                   lambda: net.weight.grad.data.mul_(0.5), lambda: halve(net.weight.grad),
                   lambda: net.zero_grad(set_to_none=True),
                   lambda: net.zero_grad(set_to_none=False)):
        backward()
        change()
        of.expect_true('changed on the way', 'on the way to the other ranks. Call optimizer.'
                       in of.raised(optimizer.step)[1])
    plain = torch.cuda.amp.GradScaler(enabled=False)
    optimizer.zero_grad()
    plain.scale(net(torch.full((1, 2), of.rank + 1.)).sum()).backward()
    plain.step(bare)        # step() of the optimizer that is not wrapped
    plain.update()
    expect_weight(of, 'a scaler that does nothing', net, -6.0)


def compare_averaged_models(of):
    torch, net = of.torch, linear(of)
    optimizer = wrap(of, net)
    average = torch.optim.swa_utils.AveragedModel(net)
    schedule = torch.optim.swa_utils.SWALR(optimizer, swa_lr=0.5, anneal_epochs=1)
    for _ in range(2):
        descend(of, net, optimizer)
        average.update_parameters(net)
        schedule.step()
    expect_weight(of, 'trained', net, 1 - 1.5 - 0.75)
    expect_weight(of, 'averaged', average.module, (-0.5 - 1.25) / 2)
    descend(of, copy.deepcopy(net), optimizer)      # these parameters are not in the optimizer
    expect_weight(of, 'a copy has its own gradients', net, -1.25)


# ---- added, removed and changed parameters ----

def compare_thawed_parameters(of):
    torch, hvd = of.torch, of.hvd
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    net[0].requires_grad_(False)
    optimizer = wrap(of, net, 0.1, lambda every, rate: torch.optim.SGD(every, rate, momentum=0.5,
                                                                      weight_decay=0.1))

    def step():
        optimizer.zero_grad(set_to_none=True)
        net(torch.full((1, 4), of.rank + 1.)).square().sum().backward()
        with torch.no_grad():       # some scripts call step() like this
            optimizer.step()
    frozen = net[0].weight.clone()
    step()
    of.expect('frozen', net[0].weight.detach(), frozen)
    for is_free in True, False, True:
        net[0].requires_grad_(is_free)
        before = net[0].weight.clone()
        step(), step()
        of.expect_true(f'trained {is_free}', torch.equal(before, net[0].weight) is not is_free)
        expect_replicas(of, f'thawed {is_free}', net[0].weight)
    ranks_of = hvd.global_process_set.sequences()
    of.expect_true('no names of former layouts', not any(
        ranks_of.optimizers != 1 and name.startswith(f'gradient{ranks_of.optimizers}.2/')
        for name in ranks_of._known))


def compare_frozen_on_one_rank(of):
    net = of.torch.nn.Linear(2, 2)
    optimizer = wrap(of, net)
    for turn in range(3):
        optimizer.zero_grad()
        net(of.torch.ones(1, 2)).sum().backward()
        told = of.raised(optimizer.step)
        of.expect_true(f'{turn}: {told}', told[0] == ('Mismatch' if turn == 2 else 'nothing'))
        net.bias.requires_grad_(of.rank == 1)       # on rank 1 the bias is trained again
    of.expect_true(told[1], 'rank 0 brought allreduce (Average) of float32[2, 2]; rank 1 brought'
                   in told[1])


def compare_added_parameters(of):
    torch, net = of.torch, linear(of)
    optimizer = wrap(of, net)
    late = torch.nn.Parameter(torch.ones(3))
    optimizer.add_param_group({'params': [late], 'lr': 0.1})
    for _ in range(2):
        optimizer.zero_grad()
        (late.sum() * (of.rank + 1)).backward()
        optimizer.step()
    of.expect_true(f'added {late}', torch.allclose(late, torch.full((3,), 0.7)))
    other = linear(of)
    optimizer.param_groups[0]['params'][0] = other.weight       # replaces the last layer
    for _ in range(2):
        descend(of, other, optimizer)
    expect_weight(of, 'replaced', other, -2.0)
    other.weight.data = torch.ones(1, 3)        # adds rows or columns
    other.weight.grad, other.in_features = None, 3
    for _ in range(2):
        descend(of, other, optimizer)
    expect_weight(of, 'resized', other, -2.0)
    other.double()
    for _ in range(2):
        optimizer.zero_grad()
        other(torch.full((1, 3), of.rank + 1., dtype=torch.float64)).sum().backward()
        optimizer.step()
    expect_weight(of, 'converted', other, -5.0)
    before = late.detach().clone()
    del optimizer.param_groups[1]
    descend(of, linear(of, 3), optimizer)
    of.expect('removed', late.detach(), before)


# ---- sparse gradients ----

def rows_of(of, rank, turn):
    """Returns the rows used by a rank in each turn: one row twice, other rows, none."""
    return [[[3, 3], [4, 5]], [[], [1]], [[0], []], [[], []]][turn][rank]


def compare_rows(of):
    """An embedding is removed from the pack of small parameters. Its gradient has the rows of all
    ranks, even rows of zeros."""
    torch, turns = of.torch, range(4)

    def make(is_sparse):
        torch.manual_seed(4)
        return torch.nn.ModuleList([torch.nn.Linear(4, 1), torch.nn.Embedding(10, 4,
                                                                              sparse=is_sparse)])

    def run(net, rows, sign):
        for row in rows or ():      # each row has its own gradient, so the rows are not coalesced
            (net[1](torch.tensor([row])).sum() * sign).backward()
        net[0](torch.ones(1, 4)).sum().backward()
    for options in {}, {'groups': 1}, {'compression': of.hvd.Compression.onebit()}:
        net = make(True)
        optimizer = wrap(of, net, 0.5, backward_passes_per_step=1, **options)
        for turn in turns:
            optimizer.zero_grad()
            rows = rows_of(of, of.rank, turn)
            loss = net[0](torch.ones(1, 4)).sum()
            if rows:
                loss = loss + net[1](torch.tensor(rows)).sum()
            loss.backward()
            optimizer.step()
            gradient = net[1].weight.grad
            every = {row for rank in range(of.workers) for row in rows_of(of, rank, turn)}
            of.expect_true(f'rows {gradient} in {turn} with {options}', gradient.is_sparse
                           and set(gradient.coalesce().indices()[0].tolist()) == every)
            counts = torch.zeros(10)
            for rank in range(of.workers):
                for row in rows_of(of, rank, turn):
                    counts[row] += 1 / of.workers
            of.expect(f'values in {turn}', gradient.to_dense(), counts.view(-1, 1).repeat(1, 4))
        expect_replicas(of, f'rows {options}', net[1].weight)
        optimizer.zero_grad()
        sign = 1. if of.rank else -1.       # the sum of both ranks is zero
        (net[1](torch.tensor([7])).sum() * sign + net[0](torch.ones(1, 4)).sum()).backward()
        optimizer.step()
        of.expect_true('rows of zeros', net[1].weight.grad.coalesce().indices().tolist() == [[7]])


def compare_sparse_as_dense(of):
    torch = of.torch
    for with_others in False, True:
        net = torch.nn.ModuleList([torch.nn.Embedding(10, 3, sparse=True)])
        if with_others:
            net.append(torch.nn.Embedding(4, 3, sparse=True))
        of.hvd.broadcast_parameters(net.parameters(), 0)
        bare = torch.optim.SparseAdam(list(net.parameters()), 0.1)
        optimizer = of.hvd.DistributedOptimizer(bare, net.named_parameters(), sparse_as_dense=True)
        for _ in range(2):
            optimizer.zero_grad()
            sum(one(torch.tensor([1, 2 + of.rank])).sum() for one in net).backward()
            optimizer.synchronize()
            for one in net:
                of.expect_true('layout', one.weight.grad.is_sparse)
                of.expect('values', one.weight.grad.to_dense()[1:4],
                          torch.tensor([[1.], [.5], [.5]]).repeat(1, 3))
            with optimizer.skip_synchronize():
                optimizer.step()
        expect_replicas(of, f'as dense {with_others}', net[0].weight)


# ---- many small tensors ----

class Calls:
    """Counts the pushes, broadcasts and declarations of a job in a `with` block."""

    def __init__(self, of):
        self._job, self.counts = of.hvd.global_process_set.sequences().job, {}

    def __enter__(self):
        for name in 'push_pull', 'broadcast', 'declare_all':
            setattr(self._job, name, self._counted(name))
        return self.counts

    def _counted(self, name):
        called = getattr(self._job, name)

        def call(*arguments, **options):
            self.counts[name] = self.counts.get(name, 0) + 1
            return called(*arguments, **options)
        return call

    def __exit__(self, *_):
        for name in 'push_pull', 'broadcast', 'declare_all':
            delattr(self._job, name)


def compare_many_tensors(of):
    """Gradients become ready in another order on each rank. Small ones are sent in a few packs."""
    torch, hvd, count = of.torch, of.hvd, 600
    shapes = [(200, 2) if i % 3 else (200,) for i in range(count)] + [(200, 200)]
    net = torch.nn.ParameterList([torch.nn.Parameter(torch.full(shape, float(i % 5 + of.rank)))
                                  for i, shape in enumerate(shapes)])
    with Calls(of) as calls:
        hvd.broadcast_parameters(net.state_dict(), 0)
    of.expect_true(f'broadcasts {calls}', calls['broadcast'] == 5 and calls['push_pull'] < 9
                   and calls['declare_all'] < 9)
    of.expect('broadcast', [one.detach() for one in net],
              [torch.full(shape, float(i % 5)) for i, shape in enumerate(shapes)])
    optimizer = wrap(of, net, kind=lambda every, rate: torch.optim.SGD(every, rate, momentum=0.5))
    for turn in range(2):
        optimizer.zero_grad()
        total = 0
        for i in range(len(shapes)) if of.rank else reversed(range(len(shapes))):
            total = total + net[i].sum() * (of.rank + i % 3)
        with Calls(of) as calls:
            total.backward()
            optimizer.step()
        of.expect_true(f'pushes {calls}', turn == 0 or calls == {'push_pull': 5})
    of.expect('means', [one.grad for one in net],
              [torch.full(shape, 0.5 + i % 3) for i, shape in enumerate(shapes)])
    with Calls(of) as calls:
        hvd.broadcast_optimizer_state(optimizer, 0)
    of.expect_true(f'broadcasts of state {calls}', calls['broadcast'] < 9)
    given = [torch.full(shape, float(of.rank + i), dtype=torch.int64 if i % 7 == 0 else None)
             for i, shape in enumerate(shapes)]
    for _ in range(2):
        with Calls(of) as calls:
            found = hvd.grouped_allreduce(given, op=hvd.Sum, name='many')
    of.expect_true(f'grouped {calls}', calls == {'push_pull': 5})
    of.expect('grouped', found, [one * 0 + 2 * i + 1 for i, one in enumerate(given)])
    hvd.grouped_allreduce_(given, name='many in place')
    of.expect('grouped in place', given[1:7], [one * 0 + i + 0.5 for i, one in
                                               enumerate(given)][1:7])


def compare_parameters_of_other_ranks(of):
    """One of many small tensors differs between ranks. The error must name this tensor."""
    hvd, torch = of.hvd, of.torch
    named = {f'p{i}': torch.ones(3 + (i == 40 and of.rank)) for i in range(60)}
    kind, text = of.raised(lambda: hvd.broadcast_parameters(named, 0))
    of.expect_true(text, kind == 'Mismatch' and "'p40'" in text and 'float32[4]' in text)
    every = [torch.nn.Parameter(one) for one in named.values()]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(every, 1.0))
    kind, text = of.raised(optimizer.step)
    of.expect_true(text, kind == 'Mismatch' and 'parameter.40' in text and 'float32[4]' in text)


# ---- habits of scripts ----

def compare_passes(of):
    net = linear(of)
    optimizer = wrap(of, net, backward_passes_per_step=2)
    given = of.torch.full((1, 2), of.rank + 1.)

    def backward(times):
        for _ in range(times):
            net(given).sum().backward()
    backward(2)
    of.expect_true('in flight', 'are in flight' in of.raised(
        lambda: optimizer.set_backward_passes_per_step(3))[1])
    optimizer.step()
    expect_weight(of, 'two passes', net, -2.0)
    optimizer.set_backward_passes_per_step(3)
    optimizer.zero_grad(set_to_none=True)
    backward(3)
    optimizer.step()
    expect_weight(of, 'three passes', net, -6.5)
    backward(1)
    optimizer.set_backward_passes_per_step(1)       # starts counting at 0 again
    optimizer.zero_grad(set_to_none=False)
    backward(1)
    of.expect_true('again', 'more than 1 times' in of.raised(lambda: backward(1))[1])
    of.expect_true('early', 'zero_grad()' in of.raised(optimizer.zero_grad)[1])
    of.expect_true('no passes', 'expected 1 or more' in of.raised(
        lambda: optimizer.set_backward_passes_per_step(0))[1])
    of.expect_true('added to on the way', 'was changed' in of.raised(optimizer.synchronize)[1])


def loaded_from_an_earlier_package(optimizer):
    """Loads a pickle made when `_optimizer` was one file."""
    now, then = b'gradpool.torch._optimizer.optimizer\n', b'gradpool.torch._optimizer\n'
    pickled = pickle.dumps(optimizer, protocol=0)
    assert now in pickled
    return pickle.loads(pickled.replace(now, then))


def compare_copies_of_optimizers(of):
    """Copies of an optimizer keep its state. They refuse a step, because they have no ranks."""
    torch, hvd, net = of.torch, of.hvd, linear(of)
    optimizer = wrap(of, net, kind=lambda every, rate: torch.optim.SGD(every, rate, momentum=0.5))
    descend(of, net, optimizer)
    file = io.BytesIO()
    torch.save(optimizer, file)
    file.seek(0)
    for other in (copy.deepcopy(optimizer), torch.load(file, weights_only=False),
                  loaded_from_an_earlier_package(optimizer)):
        of.expect_true('class', isinstance(other, torch.optim.SGD))
        of.expect_true('step of a copy', 'Pass it to DistributedOptimizer()'
                       in of.raised(other.step)[1])
        parameter, = other.param_groups[0]['params']
        of.expect('momentum', other.state[parameter]['momentum_buffer'], torch.full((1, 2), 1.5))
        again = hvd.DistributedOptimizer(other)
        parameter.grad = torch.full((1, 2), of.rank + 1.)
        again.step()
        of.expect('a copy that is wrapped', parameter.detach(), torch.full((1, 2), -0.5 - 2.25))
    saved = optimizer.state_dict()
    fresh = wrap(of, net, kind=lambda every, rate: torch.optim.SGD(every, rate, momentum=0.5))
    fresh.load_state_dict(saved)
    descend(of, net, fresh)     # the former optimizer still works
    expect_weight(of, 'loaded', net, -2.75)
    of.expect_true('the former one', 'made later' in of.raised(optimizer.step)[1])
    twice = hvd.DistributedOptimizer(fresh, net.named_parameters())
    descend(of, net, twice)
    expect_replicas(of, 'wrapped twice', net.weight)


def compare_several_models(of):
    """Trains two models like a GAN. Each optimizer steps one model, and one loss has gradients of
    both models."""
    torch, pair = of.torch, [linear(of), linear(of)]
    optimizers = [wrap(of, one, rate) for one, rate in zip(pair, (1.0, 2.0))]
    given = torch.full((1, 2), of.rank + 1.)
    for turn in range(2):
        for optimizer in optimizers:
            optimizer.zero_grad()
        (pair[0](given) + pair[1](given)).sum().backward()
        for optimizer in optimizers if of.rank else optimizers[::-1]:
            optimizer.step()
    expect_weight(of, 'the first', pair[0], -2.0)
    expect_weight(of, 'the second', pair[1], -5.0)


def compare_what_is_refused(of):
    torch, hvd, net = of.torch, of.hvd, linear(of)
    bare = torch.optim.SGD(net.parameters(), 1.0)
    for call, words in (
            (lambda: hvd.DistributedOptimizer(net), 'a Linear'),
            (lambda: hvd.DistributedOptimizer(bare, net.parameters()), 'model.named_parameters()'),
            (lambda: hvd.DistributedOptimizer(bare, [('a', net.weight), ('a', net.weight)]),
             'twice'),
            (lambda: hvd.DistributedOptimizer(bare, []), 'lacks 1 of the 1'),
            (lambda: hvd.broadcast_parameters({'a': 1.0}, 0), 'a float')):
        of.expect_true(f'refused: {words}', words in of.raised(call)[1])


# ---- repeated trainings ----

def used(of):
    """Returns the number of descriptors of the process, tensors of the job and names, and the
    memory in MiB."""
    ranks_of = of.hvd.global_process_set.sequences()
    with open('/proc/self/status') as status:
        size, = [int(line.split()[1]) >> 10 for line in status if line.startswith('VmRSS')]
    return {'fds': len(os.listdir('/proc/self/fd')), 'tensors': len(ranks_of.job._tensors),
            'names': len(ranks_of._known), 'MiB': size}


def compare_folds(of):
    """Makes and drops a model and its optimizer repeatedly. Nothing may remain."""
    torch, hvd, alive, uses = of.torch, of.hvd, weakref.WeakSet(), []
    for fold in range(FOLDS):
        net = torch.nn.Sequential(*[torch.nn.Linear(160, 160) for _ in range(4)])
        bare = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.StepLR(bare, 1)
        optimizer = hvd.DistributedOptimizer(bare, net.named_parameters())
        hvd.broadcast_parameters(net.state_dict(), 0)
        hvd.broadcast_optimizer_state(optimizer, 0)
        for _ in range(2):
            optimizer.zero_grad()
            net(torch.ones(1, 160)).sum().backward()
            optimizer.step()
        scheduler.step()
        alive.add(net)
        del net, bare, scheduler, optimizer
        if fold in (FOLDS // 4, FOLDS - 1):
            gc.collect()
            uses.append(used(of))
    of.expect_true(f'{len(alive)} models are left', len(alive) == 0)
    first, last = uses
    of.expect_true(f'{first} became {last}', last['fds'] <= first['fds'] + 2
                   and last['tensors'] <= first['tensors'] + 40
                   and last['names'] <= first['names'] + 40 and last['MiB'] < first['MiB'] + 40)
    hvd.barrier()
    if of.rank == 0:
        told = json.loads(subprocess.run([harness.GRADPOOL, 'jobs', '--json'], check=True,
                                         capture_output=True).stdout)
        of.expect_true(f'the service has {told}', all(
            job['tensors'] < last['tensors'] + 200 for job in told['jobs']))
    hvd.barrier()


def compare_another_job(of):
    """Uses an optimizer after shutdown() and init()."""
    net = linear(of)
    optimizer = wrap(of, net)
    descend(of, net, optimizer)
    of.hvd.shutdown()
    of.hvd.init()
    descend(of, net, optimizer)
    expect_weight(of, 'in another job', net, -2.0)


# Run in this order. The last function leaves the job.
COMPARES = (compare_schedulers, compare_scaling_and_clipping,
            compare_changes_of_every_kind_of_gradient, compare_averaged_models,
            compare_thawed_parameters, compare_frozen_on_one_rank, compare_added_parameters,
            compare_rows, compare_sparse_as_dense, compare_many_tensors,
            compare_parameters_of_other_ranks, compare_passes, compare_copies_of_optimizers,
            compare_several_models, compare_what_is_refused, compare_folds, compare_another_job)


def rank_runs_scripts(rank, workers):
    """Runs all comparisons. Returns {name: differences}."""
    of, found = Rank(rank, workers), {}
    for compare in COMPARES:
        of.wrong = []
        try:
            compare(of)
        except Exception:
            return {**found, compare.__name__: [*of.wrong, traceback.format_exc()]}
        found[compare.__name__] = of.wrong
    return found


class Scripts(unittest.TestCase):
    """All cases share one run of the ranks."""

    @classmethod
    def setUpClass(cls):
        cls.found = ranks.run_ranks('rank_runs_scripts', WORKERS, GRADPOOL_JOB='scripts',
                                    GRADPOOL_TIMEOUT_MS=str(TIMEOUT_MS))

    def check(self, *compares):
        wrong = [[name, found.get(name, ['was not run'])] for found in self.found
                 for name in [compare.__name__ for compare in compares]]
        self.assertEqual([one for one in wrong if one[1]], [])

    def test_schedulers_and_scalers_made_before_or_after_the_wrap_work(self):
        self.check(compare_schedulers, compare_scaling_and_clipping,
                   compare_changes_of_every_kind_of_gradient, compare_averaged_models)

    def test_parameters_that_come_and_go_and_change_are_reduced(self):
        self.check(compare_thawed_parameters, compare_frozen_on_one_rank, compare_added_parameters)

    def test_sparse_gradients_have_the_rows_of_all_ranks(self):
        self.check(compare_rows, compare_sparse_as_dense)

    def test_many_small_tensors_travel_in_few_calls(self):
        self.check(compare_many_tensors, compare_parameters_of_other_ranks)

    def test_habits_of_scripts_work_or_are_refused_in_words(self):
        self.check(compare_passes, compare_copies_of_optimizers, compare_several_models,
                   compare_what_is_refused, compare_another_job)

    def test_folds_leave_no_state_behind(self):
        self.check(compare_folds)


if __name__ == '__main__':
    ranks.main(globals(), forks=True)
