"""Compares each call of gradpool.torch with plain torch on the inputs of all ranks. Uses real
processes and a real service."""
import copy
import errno
import json
import os
import pathlib
import tempfile
import time

import python_case
import harness
import progress
import ranks
import torch_door_calls
import torch_door_values
from python_case import setUpModule, tearDownModule     # noqa: found by name
from torch_door_calls import Rank, UNTIL_S
from torch_door_joins import (                          # noqa: found by name
    rank_exchanges_in_threads, rank_is_left_alone, rank_joins_early)
from torch_door_sparse import rank_has_sparse_tensors   # noqa: found by name

TIMEOUT_MS = 60000
STEPS = 4


def rank_compares(rank, workers):
    of = Rank(rank, workers)
    torch_door_calls.compare_all(of)
    torch_door_values.compare_all(of)
    hvd = of.hvd
    of.expect_true('what it is built with', not any(
        getattr(hvd, f'{name}_built')() for name in 'mpi gloo nccl ddl ccl cuda rocm'.split()))
    hvd.check_extension('horovod.torch', 'HOROVOD_WITH_PYTORCH', __file__, 'mpi_lib_v2')
    compare_timeline(of)
    of.expect_true('places', [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(),
                              hvd.cross_rank(), hvd.cross_size()]
                   == [rank, workers, rank, workers, 0, 1])
    hvd.shutdown()
    of.expect_true('shut down', not hvd.is_initialized())
    hvd.init()      # joins another job
    of.expect('once more', hvd.allreduce(of.values(rank), op=hvd.Sum), sum(of.every()))
    return of.wrong


def compare_timeline(of):
    """Rank 0 writes a file with the rounds of all ranks. The other ranks write no file."""
    hvd, folder = of.hvd, tempfile.TemporaryDirectory(prefix='gradpool-door-')
    path = pathlib.Path(folder.name, 'trace.json')
    hvd.start_timeline(str(path))
    seen, deadline = set(), time.monotonic() + UNTIL_S
    while not hvd.broadcast_object(len(seen) == of.workers or time.monotonic() > deadline, 0):
        hvd.allreduce(of.values(of.rank), op=hvd.Sum, name='seen in a timeline')
        seen = ranks_in(path) if path.exists() else set()
    hvd.stop_timeline()
    hvd.stop_timeline()     # no recording is running; no rank may leave because of this call
    of.expect_true('timeline', seen == (set(range(of.workers)) if of.rank == 0 else set()))
    if of.rank == 0:
        of.expect_true('whole timeline', ranks_in(path) == seen)


def ranks_in(path):
    try:
        events = json.loads(path.read_text())['traceEvents']
    except ValueError:     # read between two writes
        return set()
    return {e['pid'] for e in events if e['ph'] == 'X' and 'seen in a timeline' in e['name']
            and e['pid'] < 1000}


# ---- training ----

def make_net(torch, is_sparse=False):
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.EmbeddingBag(20, 8, mode='sum', sparse=is_sparse),
                               torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))


def batch(torch, rank, step):
    return (torch.arange(12).view(4, 3) * (rank + 2) + step) % 20


def loss(net, given):
    return net(given).square().mean()


def train_alone(torch, workers, is_sparse=False, passes=1, steps=STEPS):
    """Trains in one process with the mean of all ranks' gradients, added in rank order. Returns the
    parameters."""
    net = make_net(torch, is_sparse)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0 if is_sparse else 0.9)
    for step in range(steps):
        each = []
        for rank in range(workers):
            net.zero_grad(set_to_none=True)
            for i in range(passes):
                loss(net, batch(torch, rank, passes * step + i)).backward()
            each.append([parameter.grad for parameter in net.parameters()])
        for parameter, *of_ranks in zip(net.parameters(), *each):
            parameter.grad = sum(of_ranks[1:], of_ranks[0]) / workers
        optimizer.step()
    return list(net.parameters())


def train(of, is_sparse=False, passes=1, wrong_start=False, **options):
    """Trains with DistributedOptimizer. Returns the parameters afterwards."""
    torch, hvd = of.torch, of.hvd
    net = make_net(torch, is_sparse)
    if wrong_start and of.rank:
        for parameter in net.parameters():
            parameter.data.zero_()
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0 if is_sparse else 0.9)
    groups = options.pop('groups', None)
    if groups == 'lists':
        groups = [list(net[1].parameters()), list(net[3].parameters())]
    optimizer = hvd.DistributedOptimizer(optimizer, net.named_parameters(), groups=groups,
                                         backward_passes_per_step=passes, **options)
    for step in range(STEPS):
        optimizer.zero_grad()
        for i in range(passes):
            loss(net, batch(torch, of.rank, passes * step + i)).backward()
        optimizer.step()
    return list(net.parameters()), net, optimizer


def compare_pushes(of):
    """A known operation needs one push for each tensor, and one for all small gradients together.
    The rank sends no other message."""
    hvd, job = of.hvd, of.hvd.global_process_set.sequences().job
    pushed, names = job.push_pull, []

    def count(tensor, *arguments):
        names.append(tensor.name)
        return pushed(tensor, *arguments)
    net, optimizer = train(of)[1:]
    hvd.allgather(of.values(of.rank), name='counted')
    hvd.allreduce(of.values(of.rank))
    hvd.barrier()
    job.push_pull = count
    optimizer.zero_grad()
    loss(net, batch(of.torch, of.rank, 0)).backward()
    optimizer.step()
    hvd.allgather(of.values(of.rank), name='counted')
    hvd.allreduce(of.values(of.rank))
    del job.push_pull
    of.expect_true(f'pushed {names}', len(names) == 1 + 2)


def compare_closures(of):
    """Uses optimizers that evaluate a closure several times in a step. Compares them with one
    process that has the mean of all losses. The last optimizer stops when its loss no longer falls,
    on all ranks in the same step."""
    torch, hvd = of.torch, of.hvd

    def mean(net, step):
        return sum(loss(net, batch(torch, rank, step))
                   for rank in range(of.workers)) / of.workers

    def run(net, optimizer, loss_at):
        evaluations = []
        for step in range(2):
            def closure():
                optimizer.zero_grad()
                found = loss_at(net, step)
                found.backward()
                evaluations.append(step)
                return found
            last = optimizer.step(closure)
        return net, evaluations, float(last)
    for kind, options in ((torch.optim.SGD, {}), (torch.optim.LBFGS, {'max_iter': 4}),
                          (torch.optim.LBFGS, {'max_iter': 9, 'tolerance_change': 0.02})):
        alone, net = make_net(torch), make_net(torch)
        alone, wanted, mean_loss = run(alone, kind(alone.parameters(), 0.1, **options), mean)
        optimizer = hvd.DistributedOptimizer(kind(net.parameters(), 0.1, **options),
                                             net.named_parameters())
        net, found, last = run(net, optimizer,
                               lambda net, step: loss(net, batch(torch, of.rank, step)))
        of.expect_true(f'evaluations {found}, not {wanted}', found == wanted)
        of.expect_true(f'loss {last}, not {mean_loss}', abs(last - mean_loss) < 1e-4)
        for one, other in zip(net.parameters(), alone.parameters()):
            of.expect_true(f'closures of {kind}', torch.allclose(one, other, atol=1e-4))
            of.expect('its replicas', hvd.broadcast(one.detach(), 0), one.detach())
    net = make_net(torch)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), 0.1),
                                         net.named_parameters())
    of.expect_true('no loss', optimizer.step(
        lambda: loss(net, batch(torch, of.rank, 0)).backward()) is None)


def compare_schedule(of):
    """Makes a scheduler before the optimizer is wrapped, like some scripts."""
    torch, hvd = of.torch, of.hvd
    net = make_net(torch)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    optimizer = hvd.DistributedOptimizer(optimizer, net.named_parameters())
    for step in range(2):
        optimizer.zero_grad()
        loss(net, batch(torch, of.rank, step)).backward()
        optimizer.step()
        scheduler.step()
    of.expect_true('rate', optimizer.param_groups[0]['lr'] == 0.025)
    weight = net[1].weight.detach()
    of.expect('scheduled', hvd.broadcast(weight, 0), weight)


def compare_training(of):
    torch, hvd = of.torch, of.hvd
    alone = [parameter.detach() for parameter in train_alone(torch, of.workers)]
    for options in ({'wrong_start': True}, {'num_groups': 2}, {'groups': 'lists'},
                    {'op': hvd.Average}):
        found, *_ = train(of, **options)
        of.expect(f'trained {options}', [one.detach() for one in found], alone)
    for options in ({'gradient_predivide_factor': 2.0}, {'compression': hvd.Compression.fp16}):
        found, *_ = train(of, **options)
        of.expect_true(f'trained {options}', all(torch.allclose(one, other, atol=1e-3)
                                                 for one, other in zip(found, alone)))
    found, *_ = train(of, passes=2)
    of.expect('two passes', [one.detach() for one in found],
              [one.detach() for one in train_alone(torch, of.workers, passes=2)])
    sparse = train_alone(torch, of.workers, is_sparse=True)
    for as_dense in False, True:
        found, net, optimizer = train(of, is_sparse=True, sparse_as_dense=as_dense)
        of.expect_true('sparse gradients', all(torch.allclose(one, other, atol=1e-6)
                                               for one, other in zip(found, sparse)))
        optimizer.zero_grad(set_to_none=True)
        if of.rank:     # one rank has no gradient
            loss(net, batch(torch, of.rank, 0)).backward()
        optimizer.step()
        of.expect('its replicas', hvd.broadcast(net[0].weight.detach(), 0), net[0].weight.detach())


def compare_optimizer_state(of):
    """Broadcasts the state of Adam to ranks without a state. Also returns the errors of wrong
    calls."""
    torch, hvd = of.torch, of.hvd
    net = make_net(torch)
    optimizer = torch.optim.Adam(net.parameters(), 0.1 * (of.rank + 1))
    if of.rank == 0:
        loss(net, batch(torch, 0, 0)).backward()
        optimizer.step()
    hvd.broadcast_parameters(net.named_parameters(), 0)
    hvd.broadcast_optimizer_state(optimizer, 0)
    states = hvd.allgather_object(optimizer.state_dict())
    of.expect_true('rate', all(state['param_groups'] == states[0]['param_groups']
                               for state in states))
    for state in states:
        of.expect_true('steps', len(state['state']) == 5)
        for i, known in state['state'].items():
            of.expect('moments', [known['step'], known['exp_avg'], known['exp_avg_sq']],
                      [states[0]['state'][i][key] for key in ('step', 'exp_avg', 'exp_avg_sq')])
    wrapped = hvd.DistributedOptimizer(optimizer, net.named_parameters())
    of.expect_true('class', isinstance(wrapped, torch.optim.Adam))
    loss(net, batch(torch, of.rank, 1)).backward()
    of.expect_true('early', 'zero_grad' in of.raised(wrapped.zero_grad)[1])
    wrapped.synchronize()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    with wrapped.skip_synchronize():
        wrapped.step()
    net[1](torch.ones(1, 8)).sum().backward()       # the other ranks made no pass
    wrapped.step()
    digest = torch.cat([parameter.detach().view(-1) for parameter in net.parameters()])
    of.expect('replicas', hvd.broadcast(digest, 0), digest)


def compare_lent_gradients(of):
    """From the second step on, gradients are sent without a copy from two alternating addresses.
    The script keeps or replaces some gradients, or reads them after the job's end. Their values
    must not change."""
    torch, hvd, shape = of.torch, of.hvd, (160, 160)
    job = hvd.global_process_set.sequences().job
    alloc, push_pull, places, pushes = job.alloc, job.push_pull, [], []

    def count(size):
        buffer = alloc(size)
        places.append(torch.frombuffer(buffer, dtype=torch.uint8).data_ptr())
        return buffer

    def note(tensor, gradient, result, *arguments):
        if tensor.elements == weight.numel():
            pushes.append((gradient.data_ptr(), result.data_ptr()))
        return push_pull(tensor, gradient, result, *arguments)
    weight = torch.nn.Parameter(torch.zeros(shape))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], 1.0), [('long', weight)])

    def step(set_to_none=False):
        optimizer.zero_grad(set_to_none=set_to_none)
        (weight * of.values(of.rank, shape)).sum().backward()
        gradient = weight.grad
        optimizer.step()
        of.expect('gradient', weight.grad, mean)
        of.expect_true('the same tensor', weight.grad is gradient)
    mean = sum(of.every(shape)) / of.workers
    job.alloc, job.push_pull = count, note
    for _ in range(4):
        step()
    of.expect_true(f'{places} {pushes}', len(set(places)) == 2 and pushes[1] == tuple(places[:2])
                   and pushes[2] == pushes[1][::-1] and pushes[3] == pushes[1])
    kept, copied = weight.grad.view(-1), copy.deepcopy(weight.grad)
    for _ in range(3):
        step(set_to_none=True)
    of.expect('what is kept', kept, mean.view(-1))
    of.expect('what is copied', copied, mean)
    whole = torch.zeros(2, *shape)
    weight.grad = whole[1]
    step()
    of.expect('in its place', whole[1], mean)

    def refuse(_):
        raise hvd.GradpoolError(errno.ENOSPC, 'full')
    weight.grad, job.alloc = None, refuse
    step()
    step()
    of.expect('weight', weight.detach(), -10 * mean)
    del job.alloc, job.push_pull
    return lambda: of.expect('when the job is over', kept, mean.view(-1))


def compare_uneven_batches(of):
    """Rank r has 3 + 2 r batches. A joined rank contributes zeros."""
    torch, hvd = of.torch, of.hvd
    for turn in range(2):
        net, rows = torch.nn.Linear(2, 1, bias=False), of.values(of.rank, (1, 2))
        torch.nn.init.ones_(net.weight)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), 1.0),
                                             net.named_parameters())
        count = 3 + 2 * of.rank
        for step in range(count):
            optimizer.zero_grad()
            net(rows).sum().backward()
            optimizer.step()
            gathered = hvd.allgather(rows, name='joined rows')
            there = [rank for rank in range(of.workers) if step < 3 + 2 * rank]
            of.expect('rows of who is there', gathered,
                      torch.cat([of.values(rank, (1, 2)) for rank in there]))
        last = hvd.join()
        of.expect_true(f'last {last}', last == of.workers - 1)
        whole = [(3 + 2 * rank) * of.values(rank, (1, 2)) for rank in range(of.workers)]
        hvd.broadcast_parameters(net.state_dict(), last)
        of.expect_true('uneven', torch.allclose(net.weight.detach(), 1 - sum(whole) / of.workers))


def compare_what_joined_ranks_bring(of):
    """Rank 0 reduces twice, the other ranks once. No later reduction may change an earlier
    result."""
    torch, hvd = of.torch, of.hvd
    flags, ones = torch.tensor([True, False]), torch.ones(2, dtype=torch.int32)
    for there in (of.workers, 1)[:1 if of.rank else 2]:
        for op in hvd.Min, hvd.Max:
            of.expect(f'flags {op.name}', hvd.allreduce(flags, op=op, name=op.name), flags)
        for op, wanted in (hvd.Product, 2 ** there), (hvd.Min, 2), (hvd.Max, 2):
            found = hvd.allreduce(ones, op=op, name=f'scaled {op.name}', prescale_factor=2)
            of.expect(f'scaled {op.name}', found, ones * wanted)
    hvd.join()


def compare_joins_where_calls_wait_for_their_turn(of):
    """Gathers rows without a name. All ranks must start the same number of operations in the same
    order."""
    for _ in range(3):
        for width in range(1, 6):
            of.hvd.allgather(of.torch.ones(1, width))
        of.hvd.join()
    of.hvd.barrier()


def rank_trains(rank, workers):
    of = Rank(rank, workers)
    for compare in (compare_training, compare_pushes, compare_closures, compare_schedule,
                    compare_optimizer_state, compare_uneven_batches,
                    compare_what_joined_ranks_bring,
                    compare_joins_where_calls_wait_for_their_turn):
        compare(of)
    look_again = compare_lent_gradients(of)
    of.hvd.shutdown()
    look_again()
    return of.wrong


# ---- errors ----

def rank_disagrees(rank, workers):
    """Returns the errors of each rank: of a first operation, and of one with a new shape."""
    of = Rank(rank, workers)
    torch, hvd, ones = of.torch, of.hvd, of.torch.ones
    is_odd = rank == workers - 1
    attempts = [
        lambda name: hvd.allreduce(ones(5 + is_odd), name=name),
        lambda name: hvd.allreduce(ones(2, 3) if is_odd else ones(3, 2), name=name),
        lambda name: hvd.allreduce(ones(5).double() if is_odd else ones(5), name=name),
        lambda name: hvd.allreduce(ones(5), name=name, op=hvd.Max if is_odd else hvd.Min),
        lambda name: hvd.broadcast(ones(5), int(is_odd), name=name),
        lambda name: hvd.allgather(ones(5, 1 + is_odd), name=name),
        lambda name: hvd.allgather(ones(5), name=name) if is_odd else hvd.allreduce(ones(5),
                                                                                    name=name),
        lambda name: hvd.grouped_allreduce([ones(2), ones(3)] if is_odd else [ones(2)], name=name)]
    found = []
    for i, attempt in enumerate(attempts):
        for known in None, hvd.allreduce, hvd.allgather:
            name, watch = f'attempt {i} {known is None or known.__name__}', progress.Stopwatch()
            if known:
                known(ones(5), name=name)
            time.sleep(0.02 * ((rank + i) % workers))   # in each turn another rank is first
            told = of.raised(lambda: attempt(name))
            hvd.allreduce(ones(5), name=name)   # afterwards the name works again
            found.append([*told, watch.seconds()])
    # an operation without a name
    found.append([*of.raised(lambda: hvd.allreduce(ones(1 + is_odd))), 0])
    for count in 3, 4, 5:   # several known shapes and one unknown shape
        hvd.broadcast(ones(count), 0)
    watch = progress.Stopwatch()
    found.append([*of.raised(lambda: hvd.broadcast(ones(9 if is_odd else 4), 0)),
                  watch.seconds()])
    hvd.allreduce(ones(3), op=hvd.Sum)
    # The last rank calls an operation that is new to it. In the second turn the ranks have lost the
    # common order of their calls.
    for _ in range(2):
        found.append([*of.raised(lambda: hvd.allreduce(ones(3), op=hvd.Max if is_odd else hvd.Sum)),
                      0])
    net = torch.nn.Linear(2 + is_odd, 3)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), 1.0),
                                         net.named_parameters())
    found.append([*of.raised(lambda: net(ones(1, 2 + is_odd)).sum().backward()), 0])
    found.append([*of.raised(optimizer.step), 0])
    names = {'a': ones(1), **({'b': ones(1)} if is_odd else {})}
    found.append([*of.raised(lambda: hvd.broadcast_parameters(names, 0)), 0])
    return found


def rank_mixes_calls_up(rank, workers):
    """Makes calls without names: known shapes in another order, and two kinds of calls."""
    os.environ['GRADPOOL_TIMEOUT_MS'] = '10000'
    of = Rank(rank, workers)
    hvd, ones = of.hvd, of.torch.ones
    time.sleep(5.3 * rank)      # the other rank logs its wait, which is not an error
    for count in 3, 5:
        hvd.allreduce(ones(count))
    handles = [hvd.allreduce_async(ones(5 if rank else 3)),
               hvd.alltoall_async(ones(2)) if rank else hvd.allgather_async(ones(1))]
    found = [of.raised(handle.wait) for handle in handles]
    hvd.allreduce(ones(2), name='named')    # this operation is not one of the mismatched ones
    return found


def rank_has_a_place(rank, workers):
    """One rank has Open MPI's variables, the other has Slurm's."""
    for name, value in json.loads(os.environ['TEST_PLACE'])[rank].items():
        os.environ[name] = value
    import gradpool.torch as hvd
    hvd.init()
    return [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size()]


def rank_is_refused(rank, workers):
    of = Rank(rank, workers)
    hvd, ones = of.hvd, of.torch.ones(4)
    handle = hvd.allreduce_async(ones, name='twice') if rank == 0 else None
    found = [of.raised(lambda: hvd.allreduce_async(ones, name='twice'))] if rank == 0 else [None]
    hvd.barrier()       # keeps the first operation open until now
    hvd.synchronize(handle or hvd.allreduce_async(ones, name='twice'))
    for call in (lambda: hvd.allreduce(ones, op=hvd.Adasum),
                 lambda: hvd.alltoall(ones, splits=[1] * workers + [0]),
                 lambda: hvd.broadcast(ones, workers),
                 lambda: hvd.allreduce(ones, average=True, op=hvd.Sum),
                 lambda: hvd.synchronize(7),
                 lambda: hvd.allreduce_(of.torch.ones(1).expand(4)),
                 lambda: hvd.broadcast_(of.torch.ones(1).expand(4), 0),
                 lambda: hvd.allreduce([1.0]),
                 lambda: hvd.alltoall('ones'),
                 lambda: hvd.allreduce(ones, op='sum'),
                 lambda: hvd.reducescatter(ones, op='sum'),
                 lambda: hvd.allreduce(ones, name='\udc80')):
        found.append(of.raised(call))
    hvd.allreduce(ones, name='twice')   # the refused calls must not have changed anything
    hvd.allreduce(ones)
    return found


class TorchDoor(python_case.Case):
    def run_ranks(self, function, workers, suffix=''):
        return ranks.run_ranks(function, workers, GRADPOOL_TIMEOUT_MS=str(TIMEOUT_MS),
                               GRADPOOL_JOB=self.id().rsplit('.', 1)[-1] + suffix)

    def test_every_operation_has_the_results_of_torch(self):
        for workers in 2, 3:
            self.assertEqual(self.run_ranks('rank_compares', workers, str(workers)),
                             [[]] * workers)

    def test_models_train_as_one_process_does(self):
        self.assertEqual(self.run_ranks('rank_trains', 2), [[]] * 2)

    def test_a_disagreement_of_ranks_is_reported_on_all(self):
        self.check_disagreements(self.run_ranks('rank_disagrees', 3))

    def test_sparse_tensors_are_reduced_and_checked_like_dense_ones(self):
        wrong, told = zip(*self.run_ranks('rank_has_sparse_tensors', 3))
        self.assertEqual(wrong, ([],) * 3)
        self.check_disagreements(told)

    def check_disagreements(self, every):
        for told in zip(*every):
            self.assertEqual({kind for kind, *_ in told}, {'Mismatch'}, told)
            for _, text, seconds in told:
                self.assertLess(seconds, 10)
                self.assertRegex(text, 'ranks 0, 1 brought .* rank 2 brought ')
            # both ranks print the same words, except for the part about themselves
            self.assertEqual(len({text.split('ranks disagree')[1] for _, text, _ in told}), 1)

    def test_a_rank_in_join_takes_part_or_is_named_at_once(self):
        wrong, refused, told = zip(*self.run_ranks('rank_joins_early', 3))
        self.assertEqual(wrong, ([],) * 3)
        self.assertEqual(len(refused[2]), 6)
        for kind, text, seconds in refused[2]:
            self.assertEqual(kind, 'GradpoolError', text)
            # ranks 0 and 1 do not call at the same time
            self.assertRegex(text, r'rank(s 0, 1 have| 0 has| 1 has) called join\(\)')
            self.assertIn('only allreduce, allgather and barrier of all ranks are possible', text)
            self.assertLess(seconds, 10)
        for kind, text, seconds in told:
            self.assertEqual(kind, 'Mismatch', text)
            self.assertRegex(text, r'rank 0 brought .*float32\[7, 3\], in join\(\); ranks 1, 2 '
                             r'brought .*float32\[5\]')
            self.assertIn(', in join()', text)
            self.assertLess(seconds, 10)

    def test_threads_of_a_rank_get_whole_error_texts_of_other_ranks(self):
        self.assertEqual(self.run_ranks('rank_exchanges_in_threads', 2), [[]] * 2)

    def test_calls_without_sense_are_refused_at_once(self):
        for rank, found in enumerate(self.run_ranks('rank_is_refused', 2)):
            twice, adasum, splits, root, *others = found
            for told in found[rank:]:
                self.assertEqual(told[0], 'Mismatch', told)
            for told, words in zip(others, (
                    'average', 'asynchronous call', 'expand()', 'expand()',
                    'expected a torch.Tensor', 'a str', "op is 'sum'", "op is 'sum'",
                    'the name of an operation is .*, which is no text in UTF-8'), strict=True):
                self.assertRegex(told[1], words)
            self.assertIn('Average, Sum, Min, Max and Product', adasum[1])
            self.assertIn('splits [1, 1, 0]', splits[1])
            if rank == 0:
                self.assertIn('under way', twice[1])

    def test_a_missing_rank_is_named(self):
        with tempfile.TemporaryDirectory(prefix='gradpool-door-') as folder:
            processes = ranks.start_ranks('rank_is_left_alone', 2, GRADPOOL_JOB='left-alone',
                                          TEST_FOLDER=folder)
            out, errors = harness.finish(processes[0], 60)
            harness.finish(processes[1], 60)
        self.assertEqual(processes[0].returncode, 0, errors)
        late, gone = json.loads(out.splitlines()[-1])
        self.assertEqual([late[0], gone[0]], ['Timeout', 'PeerLost'])
        for _, text in late, gone:
            self.assertIn('rank 1', text)

    def test_mixed_up_calls_without_a_name_are_an_error_on_all_ranks(self):
        calls = [['allreduce.noname.3 (allreduce (Average) of float32[3])',
                  'allgather.noname.1 (allgather of float32[*])'],
                 ['allreduce.noname.3 (allreduce (Average) of float32[5])',
                  'alltoall.noname.1 (alltoall of float32[*])']]
        for rank, found in enumerate(self.run_ranks('rank_mixes_calls_up', 2)):
            for (kind, text), mine in zip(found, calls[rank]):
                self.assertEqual(kind, 'Timeout', text)
                for word in ('matched by their order', f'Open on rank {rank}: ',
                             f'Open on rank {1 - rank}: ', mine):
                    self.assertIn(word, text)
                # a rank that has abandoned its first operation reports the second one alone
                self.assertTrue(any(call in text for call in calls[1 - rank]), text)

    def test_ranks_and_sizes_come_from_the_launcher(self):
        """In the last form a batch script of Slurm starts processes without srun. The variables
        then describe the script, not these processes."""
        forms = ('OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK',
                 'SLURM_PROCID SLURM_STEP_NUM_TASKS SLURM_LOCALID')
        places = [dict(zip(form.split(), (str(rank), '3', str(1 - rank))))
                  for rank, form in enumerate(forms)]
        places.append({'RANK': '2', 'WORLD_SIZE': '3', 'SLURM_PROCID': '0', 'SLURM_LOCALID': '0'})
        found = ranks.run_ranks('rank_has_a_place', 3, TEST_PLACE=json.dumps(places),
                                GRADPOOL_JOB='places')
        self.assertEqual(found, [[0, 3, 1, 3], [1, 3, 0, 3], [2, 3, 2, 3]])


if __name__ == '__main__':
    ranks.main(globals(), forks=True)
