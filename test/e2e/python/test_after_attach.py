"""Tests the table "After attach or wrap" of client/python/BEHAVIOUR.md. Each row is a call of a
script on an attached or wrapped model or optimizer. Each column is a way of using gradpool (a
door).

The function of a row trains twice: through the door with this rank's batch, and in plain PyTorch
with the batches of all ranks. If the table says "works", the parameters must agree; if it says
"refused", the error must contain the words of the table. "As on gloo" is a limit of
DistributedDataParallel itself."""
import copy
import io
import os
import pathlib
import pickle
import re
import tempfile

import python_case
import ranks
from python_case import setUpModule, tearDownModule     # noqa: found by name

PAGE = pathlib.Path(__file__).resolve().parents[3] / 'client/python/BEHAVIOUR.md'
TITLE = '## After attach or wrap'
WORDS = re.compile(r'refused: "(.*)"')


class Alone:
    """A script in plain PyTorch. Its loss is the mean over the batches of all ranks."""

    def __init__(self, of, **options):
        torch = self.torch = of.torch
        self.of, self.options = of, options
        torch.manual_seed(5)
        self.net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(),
                                       torch.nn.Linear(4, 2))
        self.seen = 0
        self.optimizer = self.make(self.net.parameters())
        self.models = {}

    def make(self, parameters):
        return self.torch.optim.SGD(parameters, lr=0.1, momentum=0.9)

    def begin(self):
        """Attaches or wraps the model. Afterwards gradpool averages its gradients."""
        self.model = self.wrap(self.net)

    def wrap(self, net):
        return net

    def batches(self):
        """Returns the batches of all ranks. Each call returns other batches."""
        self.seen += 1
        generator = self.torch.Generator().manual_seed(self.seen)
        return self.torch.randn(self.of.workers, 5, 3, generator=generator)

    def mine(self):
        return self.batches().flatten(0, 1)

    def loss(self, model=None):
        return (model or self.model)(self.mine()).square().mean()

    def backward(self):
        self.loss().backward()

    def step(self):
        self.optimizer.zero_grad()
        self.backward()
        self.optimizer.step()

    def accumulate(self, passes):
        """Accumulates the gradients of `passes` backward passes, then makes one step."""
        self.optimizer.zero_grad()
        for _ in range(passes):
            self.backward()
        self.optimizer.step()

    def second(self, optimizer):
        """Returns a second optimizer of the same model, wrapped as the door requires."""
        return optimizer

    def averaged(self):
        """Waits until the gradients have the values that step() uses."""

    def step_without_average(self, step=None):
        """`step`: makes the step in place of the optimizer's own step()."""
        (step or self.optimizer.step)()


class Attached(Alone):
    """Uses DistributedDataParallel over gloo, with the hook."""
    column = 'attach()'

    def wrap(self, net):
        import gradpool.ddp
        model = self.torch.nn.parallel.DistributedDataParallel(net, **self.options)
        gradpool.ddp.attach(model)
        return model

    def mine(self):
        return self.batches()[self.of.rank]

    def accumulate(self, passes):
        self.optimizer.zero_grad()
        with self.model.no_sync():
            for _ in range(passes - 1):
                self.backward()
        self.backward()
        self.optimizer.step()


class Stepped(Attached):
    """Steps are made in lanes."""
    column = 'attach(optimizer=)'

    def wrap(self, net):
        import gradpool.ddp
        model = self.torch.nn.parallel.DistributedDataParallel(net, **self.options)
        gradpool.ddp.attach(model, optimizer=self.optimizer)
        return model


class Backend(Attached):
    """Uses DistributedDataParallel over a group of the service."""
    column = 'backend'

    def wrap(self, net):
        return self.torch.nn.parallel.DistributedDataParallel(
            net, process_group=self.of.group, **self.options)


class Gloo(Backend):
    """Uses DistributedDataParallel without the service."""

    def wrap(self, net):
        return self.torch.nn.parallel.DistributedDataParallel(net, **self.options)


class Wrapped(Alone):
    """Uses Horovod's optimizer."""
    column = 'hvd'

    def begin(self):
        self.optimizer = self.second(self.optimizer)
        self.model = self.net

    def second(self, optimizer):
        own = {id(one) for group in optimizer.param_groups for one in group['params']}
        wrapped = self.of.hvd.DistributedOptimizer(
            optimizer, [(f'{self.of.row}.{name}', one)
                        for name, one in self.net.named_parameters() if id(one) in own])
        self.of.hvd.broadcast_optimizer_state(wrapped, root_rank=0)
        return wrapped

    def mine(self):
        return self.batches()[self.of.rank]

    def accumulate(self, passes):
        self.optimizer.set_backward_passes_per_step(passes)
        super().accumulate(passes)

    def averaged(self):
        self.optimizer.synchronize()

    def step_without_average(self, step=None):
        with self.optimizer.skip_synchronize():
            super().step_without_average(step)


def state_dicts(script):
    script.begin()
    script.step()
    kept = copy.deepcopy((script.net.state_dict(), script.optimizer.state_dict()))
    script.step()
    script.net.load_state_dict(kept[0])
    script.optimizer.load_state_dict(kept[1])
    script.step()


def files(script):
    script.begin()
    script.step()
    file = io.BytesIO()
    script.torch.save({'model': script.net.state_dict(),
                       'optimizer': script.optimizer.state_dict()}, file)
    script.step()
    file.seek(0)
    kept = script.torch.load(file)
    script.net.load_state_dict(kept['model'])
    script.optimizer.load_state_dict(kept['optimizer'])
    script.step()


def pickled_model(script):
    script.begin()
    script.step()
    other = pickle.loads(pickle.dumps(script.net))
    script.step()
    assert not same(other.parameters(), script.net.parameters())
    script.net.load_state_dict(other.state_dict())
    script.step()


def deep_copies(script):
    script.begin()
    script.step()
    other = copy.deepcopy(script.net)
    script.step()
    assert not same(other.parameters(), script.net.parameters())
    other(script.torch.ones(1, 3)).sum().backward()     # this pass runs only on the copy
    script.step()


def averaged_model(script):
    """Keeps a moving average (EMA) of the model, and continues to train the averaged model."""
    average = script.torch.optim.swa_utils.AveragedModel(
        script.net, avg_fn=lambda mean, new, _: 0.5 * mean + 0.5 * new)
    script.begin()
    for _ in range(3):
        script.step()
        average.update_parameters(script.net)
    for mean, own in zip(average.module.parameters(), script.net.parameters()):
        own.data.copy_(mean.data)
    script.step()


def swa_rate(script):
    script.begin()
    scheduler = script.torch.optim.swa_utils.SWALR(script.optimizer, swa_lr=0.01, anneal_epochs=2)
    for _ in range(3):
        script.step()
        scheduler.step()


def schedule(script, scheduler):
    for _ in range(4):
        script.step()
        scheduler.step()


def scheduler_before(script):
    scheduler = script.torch.optim.lr_scheduler.StepLR(script.optimizer, 1, gamma=0.5)
    script.begin()
    schedule(script, scheduler)


def scheduler_after(script):
    script.begin()
    schedule(script, script.torch.optim.lr_scheduler.StepLR(script.optimizer, 1, gamma=0.5))


def warm_up(script):
    script.begin()
    schedule(script, script.torch.optim.lr_scheduler.LambdaLR(script.optimizer,
                                                              lambda step: (step + 1) / 4))


def scaler(script):
    """uses a scale of 1 on a host without a GPU"""
    script.begin()
    scale = script.torch.cuda.amp.GradScaler(enabled=False)
    for _ in range(2):
        script.optimizer.zero_grad()
        scale.scale(script.loss()).backward()
        scale.step(script.optimizer)
        scale.update()


class HandScaler:
    """Replaces torch.amp.GradScaler in versions of PyTorch that have none for tensors on the
    CPU."""

    def __init__(self, torch, scale):
        self.torch, self.value, self.is_finite = torch, scale, True

    def scale(self, loss):
        return loss * self.value

    def unscale_(self, optimizer):
        gradients = [one.grad for group in optimizer.param_groups for one in group['params']]
        for gradient in gradients:
            gradient.mul_(1 / self.value)
        self.is_finite = all(self.torch.isfinite(one).all() for one in gradients)

    def step(self, optimizer):
        if self.is_finite:
            optimizer.step()

    def update(self):
        self.value *= 1 if self.is_finite else 0.5


def scaler_of(torch, scale=1024.0):
    if hasattr(torch.amp, 'GradScaler'):
        return torch.amp.GradScaler('cpu', init_scale=scale)
    return HandScaler(torch, scale)


def enabled_scaler(script):
    """Makes the gradients of the second step infinite: no rank may make this step."""
    script.begin()
    scale = scaler_of(script.torch)
    for factor in 1, float('inf'), 1, 1:
        script.optimizer.zero_grad()
        scale.scale(script.loss() * factor).backward()
        script.averaged()
        scale.unscale_(script.optimizer)
        script.step_without_average(lambda: scale.step(script.optimizer))
        scale.update()


def clipping(script):
    script.begin()
    for _ in range(2):
        script.optimizer.zero_grad()
        script.backward()
        script.averaged()
        script.torch.nn.utils.clip_grad_norm_(script.net.parameters(), 0.01)
        script.step_without_average()


def accumulation(script):
    script.begin()
    script.accumulate(3)
    script.accumulate(3)


def zero_grad_to_none(script):
    script.begin()
    for _ in range(2):
        script.step()
        script.optimizer.zero_grad(set_to_none=True)


def zero_grad_to_zeros(script):
    script.begin()
    for _ in range(2):
        script.step()
        script.net.zero_grad(set_to_none=False)


def frozen(script):
    script.options['find_unused_parameters'] = True
    script.begin()
    script.step()
    script.net[0].requires_grad_(False)
    script.optimizer.zero_grad(set_to_none=True)
    script.step()
    script.step()


def thawed(script):
    script.options['find_unused_parameters'] = True
    script.net[0].requires_grad_(False)
    script.begin()
    script.step()
    script.net[0].requires_grad_(True)
    script.step()
    script.step()


def another_group(script):
    script.optimizer = script.make(script.net[2].parameters())
    script.begin()
    script.step()
    script.optimizer.add_param_group({'params': list(script.net[0].parameters()), 'lr': 0.05})
    script.step()
    script.step()


def two_optimizers(script):
    script.optimizer = script.make(script.net[2].parameters())
    other = script.torch.optim.Adam(script.net[0].parameters(), lr=0.01)
    script.begin()
    other = script.second(other)
    for _ in range(2):
        other.zero_grad()
        script.step()
        other.step()


def initialised_again(script):
    script.begin()
    script.step()
    script.torch.manual_seed(8)
    for one in script.net.parameters():
        script.torch.nn.init.normal_(one)
    script.step()


def doubles(script):
    script.begin()
    script.step()
    script.net.double()
    batches, script.batches = script.batches, lambda: batches().double()
    script.step()


def clamped(script):
    script.begin()
    for _ in range(3):
        script.step()
        for one in script.net.parameters():
            one.data.clamp_(-0.2, 0.2)


# Function of each row of the table.
ROWS = {
    '`state_dict`, `load_state_dict`': state_dicts, '`torch.save`, `torch.load`': files,
    '`pickle` of the model': pickled_model, '`copy.deepcopy` of the model': deep_copies,
    'EMA (`AveragedModel`), swapped in': averaged_model, '`SWALR`': swa_rate,
    'a scheduler made before': scheduler_before, 'a scheduler made after': scheduler_after,
    'warm-up (`LambdaLR`)': warm_up, '`GradScaler`, not enabled': scaler,
    '`GradScaler`, enabled': enabled_scaler,
    '`clip_grad_norm_`': clipping, 'several backward passes a step': accumulation,
    '`zero_grad(set_to_none=True)`': zero_grad_to_none,
    '`zero_grad(set_to_none=False)`': zero_grad_to_zeros,
    '`requires_grad_(False)` later': frozen, '`requires_grad_(True)` later': thawed,
    '`add_param_group`': another_group, 'two optimizers of one model': two_optimizers,
    'initialised again': initialised_again, '`p.data.clamp_` after each step': clamped,
    '`model.double()` later': doubles}


def same(some, others):
    return all(one.detach().allclose(other.detach(), rtol=1e-4, atol=1e-6)
               for one, other in zip(some, others))


class Walk:
    """Runs all rows of the table on one rank, through every door."""

    def __init__(self, rank, workers):
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(workers))
        import torch
        import torch.distributed as dist
        import gradpool.distributed     # noqa: registers the backend
        import gradpool.torch as hvd
        self.torch, self.hvd, self.rank, self.workers = torch, hvd, rank, workers
        torch.set_num_threads(1)
        dist.init_process_group('gloo', init_method=f"file://{os.environ['TEST_FOLDER']}/store",
                                rank=rank, world_size=workers)
        self.group = dist.new_group(backend='gradpool')
        hvd.init()

    def outcome(self, door, row):
        """Runs a row through a door. Returns "works", "as on gloo", or the error."""
        self.row = row.__name__
        try:
            found, wanted = self.trained(door, row), self.trained(Alone, row)
        except Exception as error:
            return f'{type(error).__name__}: {error}'
        if same(found, wanted):
            return 'works'
        as_on_gloo = issubclass(door, Attached) and same(found, self.trained(Gloo, row))
        return 'as on gloo' if as_on_gloo else 'other parameters than in plain PyTorch'

    def trained(self, door, row):
        """Trains. Returns the parameters at the end."""
        script = door(self)
        row(script)
        return list(script.net.parameters())


DOORS = {door.column: door for door in (Attached, Stepped, Backend, Wrapped)}


def rank_walks(rank, workers):
    """Returns {door: {row: outcome}}."""
    of = Walk(rank, workers)
    doors = os.environ['TEST_DOORS'].split()
    return {name: {title: of.outcome(DOORS[name], row) for title, row in ROWS.items()}
            for name in doors}


def table():
    """Reads the table of the page. Returns {door: {row: cell}}."""
    lines = PAGE.read_text(encoding='utf-8').split(TITLE)[1].split('\n##')[0].splitlines()
    head, _, *rows = [[cell.strip() for cell in line.strip('|').split(' | ')]
                      for line in lines if line.startswith('|')]
    return {column.strip('`'): {row[0]: row[i] for row in rows}
            for i, column in enumerate(head) if i}


class AfterAttach(python_case.Case):
    def walk(self, door):
        with tempfile.TemporaryDirectory(prefix='gradpool-after-') as folder:
            found = ranks.run_ranks('rank_walks', 2, TEST_FOLDER=folder, TEST_DOORS=door,
                                    GRADPOOL_JOB=f'after-{door}')
        cells = table()[door]
        self.assertEqual(set(cells), set(ROWS))
        for title, cell in cells.items():
            with self.subTest(title):
                words = WORDS.match(cell)
                for of_rank in found:
                    said = of_rank[door][title]
                    if words:
                        self.assertIn(words[1], said)
                    else:
                        self.assertEqual(said, cell)

    def test_the_table_is_right_for_attach(self):
        self.walk('attach()')

    def test_the_table_is_right_for_attach_with_an_optimizer(self):
        self.walk('attach(optimizer=)')

    def test_the_table_is_right_for_the_backend(self):
        self.walk('backend')

    def test_the_table_is_right_for_the_optimizer_of_horovod(self):
        self.walk('hvd')


if __name__ == '__main__':
    ranks.main(globals(), forks=True)
