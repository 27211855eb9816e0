"""Runs short scripts of public bug reports about PyTorch, Horovod, Lightning, Accelerate,
DeepSpeed, TRL and Ray. Each result must be the value that the author of the report expected.

A case is named after its repository and the number of the report, or after a habit shared by
several reports."""
import datetime
import os
import pathlib
import tempfile

import harness
import python_case
import ranks
from python_case import setUpModule, tearDownModule     # noqa: found by name
from test_distributed import Rank, SOON_S

TIMEOUT_S = 60      # timeout of each group, in seconds


def strided(of, value):
    """Returns the two elements [value, value + 1], with a gap between them."""
    wide = of.torch.zeros(2, 2) - 1
    wide[:, 0] = of.torch.tensor([value, value + 1.0])
    return wide[:, 0]


def pytorch_192920(of):
    """Uses columns of a matrix in broadcast, reduce and scatter."""
    torch, dist = of.torch, of.dist
    column = strided(of, of.rank)
    dist.broadcast(column, src=0)
    of.expect('broadcast of a column', column, torch.tensor([0.0, 1.0]))
    column = strided(of, of.rank)
    dist.reduce(column, dst=0)
    if of.rank == 0:
        of.expect('reduce of a column', column, torch.tensor([1.0, 3.0]))
    column = strided(of, 9)
    given = [strided(of, 10 * rank) for rank in range(of.workers)] if of.rank == 0 else None
    dist.scatter(column, given, src=0)
    of.expect('scatter into a column', column, torch.tensor([10.0, 11.0]) if of.rank
              else torch.tensor([0.0, 1.0]))


def pytorch_24836(of):
    """Scatters every second element."""
    found = of.torch.zeros(3)
    every_second = of.torch.linspace(0, 5, 6)[::2]
    of.dist.scatter(found, [every_second] * of.workers if of.rank == 0 else [], 0)
    of.expect('scatter of every second', found, of.torch.tensor([0.0, 2.0, 4.0]))


def pytorch_74809(of):
    """Gathers a tensor transposed by numpy."""
    import numpy
    mine = of.torch.from_numpy(numpy.arange(10).reshape(2, 5).T).float()
    found = [of.torch.zeros(5, 2) for _ in range(of.workers)] if of.rank == 1 else None
    of.dist.gather(mine, found, dst=1)
    if of.rank == 1:
        of.expect('gather of a transposed tensor', found, [mine] * of.workers)


def pytorch_158902(of):
    """Gathers columns with different values, with gather and all_gather."""
    mine = strided(of, 5 * of.rank)
    wanted = [of.torch.tensor([5.0 * rank, 5.0 * rank + 1]) for rank in range(of.workers)]
    found = [strided(of, 0) for _ in range(of.workers)]
    of.dist.all_gather(found, mine)
    of.expect('all_gather into columns', found, wanted)
    found = [of.torch.zeros(2) for _ in range(of.workers)] if of.rank == 0 else None
    of.dist.gather(mine, found, dst=0)
    if of.rank == 0:
        of.expect('gather of columns', found, wanted)


def pytorch_20421(of):
    """Gathers one chunk of a tensor with all_gather."""
    whole = of.torch.arange(48.0).view(4, 12)
    chunks = whole.chunk(of.workers)
    found = [of.torch.zeros_like(chunk) for chunk in chunks]
    of.dist.all_gather(found, chunks[of.rank].contiguous())
    of.expect('all_gather of chunks', found, chunks)


def pytorch_7702(of):
    """Each call has a few elements less. Memory must not grow."""
    import resource
    for length in range(40000, 36000, -100):
        found = of.torch.ones(length)
        of.dist.all_reduce(found)
        if length == 38000:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    of.expect('all_reduce of new lengths', found, of.torch.full((36100,), float(of.workers)))
    if grown > 4096:
        of.wrong.append(f'all_reduce of new lengths: {grown} KiB more')


def pytorch_20355(of):
    """Averages parameters one by one, asynchronously. Only a barrier follows, no wait."""
    model = of.torch.nn.Linear(4, 3)
    for parameter in model.parameters():
        parameter.data.fill_(of.rank + 1.0)
        of.dist.all_reduce(parameter.data, async_op=True)
    of.dist.barrier()
    of.expect('all_reduce without a handle', [p.data for p in model.parameters()],
              [of.torch.full((3, 4), 3.0), of.torch.full((3,), 3.0)])


def pytorch_12603(of):
    """Checks that all ranks have the mean as gradient."""
    model = ddp(of, of.torch.nn.Linear(3, 2))
    model(of.torch.full((1, 3), of.rank + 1.0)).sum().backward()
    of.expect('gradients of DDP', model.module.weight.grad, of.torch.full((2, 3), 1.5))


def ddp(of, module, **options):
    of.torch.manual_seed(1)
    for parameter in module.parameters():
        parameter.data.fill_(0.5)
    return of.torch.nn.parallel.DistributedDataParallel(module, **options)


def pytorch_143647(of):
    """Evaluates without gradients before training, and switches synchronisation by hand."""
    model = ddp(of, of.torch.nn.Linear(1, 1, bias=False))
    model.eval()
    with of.torch.no_grad():
        model(of.torch.ones(1, 1))
    model.train()
    for step in range(2):
        for part in range(3):
            model.require_backward_grad_sync = part == 2
            model(of.torch.full((1, 1), of.rank + 1.0)).sum().backward()
        of.expect(f'accumulated, step {step}', model.module.weight.grad, of.torch.full((1, 1), 4.5))
        model.module.weight.grad = None


def pytorch_22095(of):
    """Makes two forward passes before one backward pass of a model with buffers (GAN)."""
    nn = of.torch.nn
    model = ddp(of, nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), broadcast_buffers=False)
    fake, real = of.torch.eye(2) + of.rank, of.torch.eye(2) * 2
    (model(fake).sum() + (model(real) * 3).sum()).backward()
    mine = of.torch.cat([p.grad.flatten() for p in model.parameters()])
    first, *others = of.everybodys(mine)
    of.expect('two forward passes', [first] * len(others), others)


def pytorch_18953(of):
    """Trains two models with one loss. Their branches differ from step to step."""
    one, other = (ddp(of, of.torch.nn.Linear(1, 1, bias=False)) for _ in range(2))
    for step in range(3):
        x = of.torch.full((1, 1), of.rank + 1.0)
        loss = one(x) + other(x) if step % 2 else other(x) * 2 + one(x)
        loss.sum().backward()
        wanted = 1.5, 1.5 if step % 2 else 3.0
        of.expect(f'two models, step {step}', [one.module.weight.grad, other.module.weight.grad],
                  [of.torch.full((1, 1), value) for value in wanted])
        one.zero_grad(set_to_none=True)
        other.zero_grad(set_to_none=False)


def pytorch_97030(of):
    """Uses a static graph with an unused output. It must behave as with gloo."""
    nn = of.torch.nn

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)

        def forward(self, x):
            return self.a(x), self.b(x)

    def outcome(group):
        model = ddp(of, Two(), static_graph=True, process_group=group)
        for _ in range(2):
            model(of.torch.full((1, 2), of.rank + 1.0))[0].sum().backward()
        return model.module.a.weight.grad.sum().item()

    def said(group):
        try:
            return outcome(group)
        except RuntimeError as error:
            return str(error).split('.')[0]
    ours, theirs = said(None), said(of.gloo)
    if ours != theirs:
        of.wrong.append(f'static graph: {ours} instead of {theirs}')


def pytorch_118337(of):
    """Uses gather_object in a group without rank 0. The destination is a rank of the default
    group."""
    found = [None] if of.rank == of.workers - 1 else None
    if of.last is not None and of.rank == of.workers - 1:
        of.dist.gather_object({'of': of.rank}, found, dst=of.rank, group=of.last)
        if found != [{'of': of.rank}]:
            of.wrong.append(f'gather_object: {found}')


def pytorch_74602(of):
    """Uses scatter_object_list in a group without rank 0. It must behave as with gloo."""
    last = of.workers - 1

    def outcome(backend):
        group = of.dist.new_group([last], backend=backend)
        if of.rank != last:
            return None
        found = [None]
        try:
            of.dist.scatter_object_list(found, ['alone'], src=last, group=group)
        except (RuntimeError, ValueError) as error:
            return type(error).__name__
        return found
    ours, theirs = outcome('gradpool'), outcome('gloo')
    if ours != theirs:
        of.wrong.append(f'scatter_object_list: {ours} instead of {theirs}')


def pytorch_130515(of):
    """The gradient of a broadcast in a graph is the sum over the ranks. Only the source
    receives it."""
    import torch.distributed.nn.functional as functional
    mine = of.torch.full((3,), of.rank + 1.0, requires_grad=True)
    found = functional.broadcast(mine, src=0)
    of.expect('broadcast in a graph', found.detach(), of.torch.ones(3))
    (found * (of.rank + 1)).sum().backward()
    of.expect('its gradient', mine.grad, of.torch.full((3,), 0.0 if of.rank else 3.0))


def pytorch_73515(of):
    """Uses collectives inside a graph on tensors with strides."""
    import torch.distributed.nn.functional as functional
    mine = strided(of, of.rank + 1.0).detach().requires_grad_()
    gathered = functional.all_gather(mine)
    of.expect('all_gather in a graph', [one.detach() for one in gathered],
              [of.torch.tensor([rank + 1.0, rank + 2.0]) for rank in range(of.workers)])
    sum(one.sum() * (rank + 1) for rank, one in enumerate(gathered)).backward()
    of.expect('its gradient', mine.grad,
              of.torch.full((2,), float(of.workers * (of.rank + 1))))


def trl_1342(of):
    """Gathers empty tensors of all ranks, in lists and in one tensor."""
    found = [of.torch.ones(0) for _ in range(of.workers)]
    of.dist.all_gather(found, of.torch.ones(0))
    of.expect('all_gather of nothing', found, [of.torch.ones(0)] * of.workers)
    empty = of.torch.ones(0, 3)
    of.dist.all_reduce(empty)
    of.expect('all_reduce of nothing', empty, of.torch.ones(0, 3))


def accelerate_1674(of):
    """Pads last batches of several lengths to the longest one, gathers them and cuts them."""
    torch, dist = of.torch, of.dist
    mine = torch.arange(3.0 + of.rank) + 10 * of.rank
    sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(of.workers)]
    dist.all_gather(sizes, torch.tensor([len(mine)]))
    padded = torch.full((int(max(sizes)),), -1.0)
    padded[:len(mine)] = mine
    found = [torch.empty_like(padded) for _ in range(of.workers)]
    dist.all_gather(found, padded)
    of.expect('padded batches', [one[:int(size)] for one, size in zip(found, sizes)],
              [torch.arange(3.0 + rank) + 10 * rank for rank in range(of.workers)])


def lightning_sync_dist(of):
    """Reduces a metric that is a whole number, a mean of flags, and a sum of counts."""
    torch, dist = of.torch, of.dist
    count, flag = torch.tensor(of.rank + 3), torch.tensor(of.rank == 0)
    dist.all_reduce(count)
    of.expect('a count', count, torch.tensor(7))
    share = flag.float()
    dist.all_reduce(share)
    of.expect('a share', share / of.workers, torch.tensor(0.5))
    scalar = torch.tensor(float(of.rank), dtype=torch.float64)
    dist.all_reduce(scalar, dist.ReduceOp.MAX)
    of.expect('a scalar', scalar, torch.tensor(1.0, dtype=torch.float64))


def lightning_objects(of):
    """Sends a path chosen by rank 0, and every rank's results as a dictionary."""
    chosen = [f'checkpoints/{of.rank}' if of.rank == 0 else None]
    of.dist.broadcast_object_list(chosen, src=0)
    found = [None] * of.workers
    of.dist.all_gather_object(found, {'rank': of.rank, 'text': 'x' * (1000 * of.rank)})
    if chosen != ['checkpoints/0'] or [one['rank'] for one in found] != list(range(of.workers)):
        of.wrong.append(f'objects: {chosen} {found}')


def deepspeed_4488(of):
    """Calls monitored_barrier, with and without its own deadline."""
    of.dist.monitored_barrier()
    of.dist.monitored_barrier(timeout=datetime.timedelta(seconds=TIMEOUT_S))


def deepspeed_flat(of):
    """Flattens gradients, some of them halves, into one tensor. Uses views of the sum."""
    torch = of.torch
    parts = [torch.full((3,), of.rank + 1.0), torch.full((2, 2), 10.0 * (of.rank + 1))]
    flat = torch._utils._flatten_dense_tensors(parts).half()
    of.dist.all_reduce(flat)
    back = torch._utils._unflatten_dense_tensors(flat, parts)
    of.expect('flat halves', back, [torch.full((3,), 3.0).half(),
                                    torch.full((2, 2), 30.0).half()])


def ray_group_again(of):
    """Destroys and makes a group in one process, three times."""
    for number in range(3):
        of.dist.destroy_process_group()
        of.begin(f'again{number}')
        one = of.torch.ones(2)
        of.dist.all_reduce(one)
        of.expect(f'group {number}', one, of.torch.full((2,), float(of.workers)))
    of.gloo = None


CASES = [pytorch_192920, pytorch_24836, pytorch_74809, pytorch_158902, pytorch_20421, pytorch_7702,
         pytorch_20355, pytorch_12603, pytorch_143647, pytorch_22095, pytorch_18953, pytorch_97030,
         pytorch_118337, pytorch_74602, pytorch_130515, pytorch_73515, trl_1342, accelerate_1674,
         lightning_sync_dist, lightning_objects, deepspeed_4488, deepspeed_flat, ray_group_again]


def replayed(cases, of):
    """Runs the cases. Returns {case: differences, or the error that ended it}."""
    found = {}
    for case in cases:
        of.wrong = []
        try:
            case(of)
        except Exception as error:
            of.wrong.append(f'{type(error).__name__}: {error}')
        found[case.__name__] = of.wrong
    return found


def rank_replays(rank, workers):
    of = Rank(rank, workers, TIMEOUT_S)
    of.last = of.dist.new_group([workers - 1])
    return replayed(CASES, of)


def rank_debugs_in_detail(rank, workers):
    """pytorch_148976: barriers and DDP under TORCH_DISTRIBUTED_DEBUG=DETAIL."""
    of = Rank(rank, workers, TIMEOUT_S, has_gloo=False)
    of.dist.barrier()
    pytorch_12603(of)
    of.dist.barrier()
    return of.wrong


def rank_gathers_alone(rank, workers):
    """accelerate_2785: rank 0 calls gather, but the other ranks are already behind this call."""
    of = Rank(rank, workers, TIMEOUT_S, has_gloo=False)
    of.dist.group.WORLD.timeout_s = SOON_S
    over = pathlib.Path(os.environ['TEST_FOLDER'], 'over')
    if rank:    # runs until rank 0 has its error
        harness.until(over.exists, 'the error of rank 0')
        return ''
    try:
        of.dist.all_gather([of.torch.ones(1) for _ in range(workers)], of.torch.ones(1))
        return 'gathered'
    except RuntimeError as error:
        return str(error)
    finally:
        over.touch()


# Horovod's reports.

def horovod_2497(of):
    """Accumulates gradients over three passes. The last step of an epoch has fewer passes."""
    hvd, torch = of.hvd, of.torch
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), [('w2497', weight)],
                                         backward_passes_per_step=3)
    for _ in range(2):
        for _ in range(3):
            (weight * (of.rank + 1)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    of.expect('three passes', weight.detach(), torch.tensor([-9.0]))
    (weight * (of.rank + 1)).sum().backward()   # a single pass
    optimizer.step()
    of.expect('the last pass', weight.detach(), torch.tensor([-10.5]))


def stepping_one(of, name):
    """Returns (weight of zero, its wrapped optimizer with rate 1)."""
    weight = of.torch.nn.Parameter(of.torch.zeros(1))
    return weight, of.hvd.DistributedOptimizer(of.torch.optim.SGD([weight], lr=1.0),
                                               [(name, weight)])


def horovod_543(of):
    """Accumulates passes locally in the script."""
    weight, optimizer = stepping_one(of, 'w543')
    loss = sum((weight * (of.rank + 1)).sum() for _ in range(4))
    loss.backward()
    optimizer.step()
    of.expect('one sum of four passes', weight.detach(), of.torch.tensor([-6.0]))


def horovod_1099(of):
    """Clips between synchronize() and step()."""
    weight, optimizer = stepping_one(of, 'w1099')
    (weight * 10 * (of.rank + 1)).sum().backward()
    optimizer.synchronize()
    of.torch.nn.utils.clip_grad_norm_([weight], 1.0)
    with optimizer.skip_synchronize():
        optimizer.step()
    if abs(weight.item() + 1) > 1e-5:
        of.wrong.append(f'clipped: {weight.item()} instead of -1')


def stepped(of, make):
    """Returns a new optimizer. On rank 0 the optimizer has made a step, and its rate is 0.25."""
    torch = of.torch
    weights = [torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(1))]
    weights[1].requires_grad_(False)
    optimizer = make(weights)
    if of.rank == 0:
        weights[0].grad = torch.ones(2)
        optimizer.step()
        optimizer.param_groups[0]['lr'] = 0.25
    return optimizer


def broadcast_state(of, name, make, kept):
    """Broadcasts rank 0's state and settings to all ranks. `kept` contains the names of moments."""
    optimizer = stepped(of, make)
    of.hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    group = optimizer.param_groups[0]
    state = list(optimizer.state.values())
    if group['lr'] != 0.25 or type(group['lr']) is not float:
        of.wrong.append(f"{name}: lr is {group['lr']!r}")
    for moment in kept:
        if not state or moment not in state[0]:
            of.wrong.append(f'{name}: no {moment} in {state}')
    group['params'][0].grad = of.torch.ones(2)
    optimizer.step()
    return group['params'][0].detach()


def horovod_392(of):
    """Adam: only rank 0 has loaded the state."""
    broadcast_state(of, 'Adam', lambda w: of.torch.optim.Adam(w, lr=0.1), ['exp_avg', 'step'])


def horovod_605(of):
    """Adamax: betas must still be floats of Python."""
    broadcast_state(of, 'Adamax', lambda w: of.torch.optim.Adamax(w, lr=0.1), ['exp_avg'])


def horovod_548(of):
    """SGD without momentum has no state. One parameter is frozen."""
    broadcast_state(of, 'SGD', lambda w: of.torch.optim.SGD(w, lr=0.1), [])


def horovod_526(of):
    """SGD with momentum: all ranks receive rank 0's rate."""
    broadcast_state(of, 'momentum', lambda w: of.torch.optim.SGD(w, lr=0.1, momentum=0.9),
                    ['momentum_buffer'])


def horovod_3226(of):
    """allreduce_ works in place on whole numbers."""
    mine = of.torch.arange(2, dtype=of.torch.int64) + 1 + 2 * of.rank
    of.hvd.allreduce_(mine, name='summed_tensor', op=of.hvd.Sum)
    of.expect('allreduce_', mine, of.torch.tensor([4, 6]))


def horovod_1742(of):
    """allreduce does not change its argument."""
    mine = of.torch.as_tensor([7371 if of.rank == 0 else 7340])
    found = of.hvd.allreduce(mine, average=False)
    of.expect('allreduce', found, of.torch.tensor([14711]))
    of.expect('its argument', mine, of.torch.tensor([7371 if of.rank == 0 else 7340]))


def horovod_375(of):
    """Averages a metric from Python's own numbers."""
    found = of.hvd.allreduce(of.torch.tensor(0.5 + of.rank), name='accuracy')
    of.expect('accuracy', found, of.torch.tensor(1.0))


def horovod_3570(of):
    """Rank 0 joins early. For a mean rank 0 contributes zeros; an allgather omits rank 0."""
    hvd, torch = of.hvd, of.torch
    if of.rank == 0:
        hvd.join()
        return
    found = hvd.allreduce(torch.full((3,), 4.0), name='late mean')
    of.expect('a mean beside a joined rank', found, torch.full((3,), 2.0))
    hvd.join()


HOROVOD = [horovod_2497, horovod_543, horovod_1099, horovod_392, horovod_605, horovod_548,
           horovod_526, horovod_3226, horovod_1742, horovod_375, horovod_3570]


def rank_replays_horovod(rank, workers):
    from torch_door_calls import Rank as DoorRank
    of = DoorRank(rank, workers)
    return replayed(HOROVOD, of)


class Reports(python_case.Case):
    def run_all(self, function, **environment):
        with tempfile.TemporaryDirectory(prefix='gradpool-reports-') as folder:
            return ranks.run_ranks(function, 2, TEST_FOLDER=folder, GRADPOOL_JOB=function,
                                   **environment)

    def check(self, function, cases):
        found = self.run_all(function)
        for case in cases:
            with self.subTest(case.__name__):
                self.assertEqual([of[case.__name__] for of in found], [[], []])

    def test_scripts_for_torch_distributed_have_the_values_that_their_authors_expected(self):
        self.check('rank_replays', CASES)

    def test_scripts_for_horovod_have_the_values_that_their_authors_expected(self):
        self.check('rank_replays_horovod', HOROVOD)

    def test_barriers_and_ddp_work_under_detailed_debugging(self):
        found = self.run_all('rank_debugs_in_detail', TORCH_DISTRIBUTED_DEBUG='DETAIL')
        self.assertEqual(found, [[], []])

    def test_a_gather_by_one_rank_alone_ends_soon_and_names_the_missing_rank(self):
        said, _ = self.run_all('rank_gathers_alone')
        self.assertIn('rank 1', said)


if __name__ == '__main__':
    ranks.main(globals(), forks=True)
