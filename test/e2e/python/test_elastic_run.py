"""Tests gradpool.elastic.Run with real processes: workers join and leave, or are killed, while they
train. Each worker writes the samples of each step, and a checksum of its model after the step. A
replay in one process computes each gradient again, takes the mean by the formula of
gradpool_elastic.h, and must reach the same bits."""
import collections
import json
import os
import pathlib
import signal
import time
import types
import unittest

import harness
import ranks
from harness import until

# with these numbers, the last step of an epoch has one sample
SAMPLES, BATCH, EPOCHS = 201, 8, 3
PAGE = pathlib.Path(__file__).resolve().parents[3] / 'client/python/ELASTIC.md'
GROWS = 10              # number of the step after which rank 0 requests a third worker
THREE = 20              # number of steps of the third worker before rank 0 removes it
EPOCHS_MOST = 100000    # limit of epochs, which ends a job if its third worker never joins
service = None


def setUpModule():
    global service
    service = harness.Service()
    os.environ['GRADPOOL_ENDPOINT'] = service.endpoint


def tearDownModule():
    service.end()


# ---- workers ----

def training(seed):
    """Returns (x, y, model, optimizer, scheduler). Each worker begins with other parameters."""
    import torch
    torch.manual_seed(7)
    x, y = torch.randn(SAMPLES, 5), torch.randn(SAMPLES, 1)
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    return x, y, model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 9, 0.8)


def backward(x, y, model, optimizer, indices):
    optimizer.zero_grad()
    (model(x[indices]) - y[indices]).square().mean().backward()


def bits(model):
    return b''.join(one.detach().numpy().tobytes() for one in model.parameters()).hex()


def run_of(model, optimizer, scheduler, rank, founders, epochs=EPOCHS, **options):
    from gradpool.elastic import Run
    return Run(model, optimizer, SAMPLES, BATCH, epochs, also=[scheduler], seed=5,
               job=os.environ['TEST_JOB'], rank=rank, workers=founders, workers_max=3, **options)


def write(rank, **line):
    with open(f"{os.environ['TEST_FOLDER']}/{rank}", 'a', encoding='utf-8') as log:
        log.write(json.dumps(line) + '\n')


def lines_of(folder, rank):
    path = pathlib.Path(folder) / str(rank)
    text = path.read_text(encoding='utf-8') if path.exists() else ''
    return [json.loads(line) for line in text.splitlines(True) if line.endswith('\n')]


class Resizes:
    """Rank 0 lets the job grow, shrink, and end two epochs later. Each part begins when the third
    worker has done the part before."""

    def __init__(self, run):
        self._run, self._part = run, 0

    def after(self, step):
        third = lines_of(os.environ['TEST_FOLDER'], 2) if self._part in (1, 2) else []
        if self._part == 0 and step.number == GROWS:
            write(0, grows=1)
            self._run.resize(3)
        elif self._part == 1 and sum(line.get('weight', 0) > 0 for line in third) >= THREE:
            self._run.resize(2)
        elif self._part == 2 and third and 'ending' in third[-1]:
            write('end', epoch=step.epoch + 2)
        else:
            return
        self._part += 1


def rank_resizes(rank, founders):
    """Trains until rank 0 has written the last epoch."""
    x, y, model, optimizer, scheduler = training(rank)
    run = run_of(model, optimizer, scheduler, rank, founders, epochs=EPOCHS_MOST)
    resizes = Resizes(run)
    for epoch in run.epochs():
        if any(line['epoch'] <= epoch for line in lines_of(os.environ['TEST_FOLDER'], 'end')):
            break
        for step in run:
            train(rank, step, x, y, model, optimizer, scheduler)
            if rank == 0:
                resizes.after(step)
    run.close()
    write(rank, ending=run.ending)
    return run.ending, run.is_first


def train(rank, step, x, y, model, optimizer, scheduler):
    write(rank, number=step.number, epoch=step.epoch, weight=step.weight, batch=step.batch,
          indices=step.indices.tolist()[:step.weight])
    backward(x, y, model, optimizer, step.indices)
    optimizer.step()
    scheduler.step()
    write(rank, number=step.number, bits=bits(model))


def rank_ends_epochs(rank, founders):
    """Trains with one step an epoch, so that a late worker receives the state at the end of an
    epoch. Returns the learning rates in the epochs."""
    import torch
    x, y, model, optimizer, _ = training(rank)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.999)
    from gradpool.elastic import Run
    run = Run(model, optimizer, 8, 8, EPOCHS_MOST, also=[scheduler], job=os.environ['TEST_JOB'],
              rank=rank, workers=founders, workers_max=2)
    rates, folder = {}, os.environ['TEST_FOLDER']
    for epoch in run.epochs():
        if any(line['epoch'] <= epoch for line in lines_of(folder, 'end')):
            break
        for step in run:
            rates[epoch] = optimizer.param_groups[0]['lr']
            write(rank, number=step.number, bits='')
            backward(x, y, model, optimizer, step.indices)
            optimizer.step()
            if rank == 0 and epoch == GROWS:
                run.resize(2)
            elif rank == 1 and len(rates) == GROWS:
                write('end', epoch=epoch + 2)
        scheduler.step()
    run.close()
    return rates


def rank_trains(rank, founders):
    x, y, model, optimizer, scheduler = training(rank)
    run = run_of(model, optimizer, scheduler, rank, founders)
    was_first = run.is_first
    for step in run:
        train(rank, step, x, y, model, optimizer, scheduler)
    return run.ending, was_first, run.is_first


def rank_loads(rank, founders):
    """Trains with processes of DataLoader. Returns whether each batch had the step's samples."""
    import torch
    x, y, model, optimizer, scheduler = training(rank)
    data = torch.utils.data.TensorDataset(torch.arange(SAMPLES), x, y)
    run = run_of(model, optimizer, scheduler, rank, founders, prefetch=2)
    found, epochs = [], []
    for epoch in run.epochs():
        epochs.append(epoch)
        for indices, some_x, some_y in run.loader(data, num_workers=epoch % 2):
            weight = run._deal.step.weight
            found += [[epoch, index] for index in indices.tolist()[:weight]]
            optimizer.zero_grad()
            (model(some_x) - some_y).square().mean().backward()
            optimizer.step()
    return epochs, found, run.ending


def rank_loads_less_than_the_deal(rank, founders):
    """One loader reads two steps ahead, for all epochs. Returns the indices of the batches."""
    x, _, model, optimizer, scheduler = training(rank)
    run, found = run_of(model, optimizer, scheduler, rank, founders, prefetch=5), []
    for indices in run.loader(range(SAMPLES), num_workers=1):
        found += indices.tolist()[:run._deal.step.weight]
        optimizer.zero_grad()
        model(x[indices]).square().mean().backward()
    return found


def rank_runs_the_page(rank, founders):
    """Runs the script of the page unchanged."""
    text = PAGE.read_text(encoding='utf-8').split('```python\n')[1].split('```')[0]
    module = types.ModuleType('page')
    exec(compile(text, 'elastic_run.py', 'exec'), vars(module))
    return module.run.ending, bits(module.model)


# ---- the replay ----

def mean_by_formula(shares):
    """Returns ((w0 g0 + w1 g1) + ...) / (w0 + w1 + ...) of [(weight, gradient)] in rank order."""
    import math
    import numpy
    common = math.gcd(*(weight for weight, _ in shares))
    total, weights = None, 0
    for weight, gradient in shares:
        part = numpy.float32(weight // common) * gradient
        total = part if total is None else total + part
        weights += weight // common
    return total / numpy.float32(weights)


def replay(steps):
    """Trains the steps ([(bits after it, [indices of each rank, in rank order])]) in this process.
    Returns the numbers of steps with other bits."""
    import torch
    torch.set_num_threads(1)
    x, y, model, optimizer, scheduler = training(0)
    wrong = []
    for number, wanted, shares in steps:
        found = []
        for indices in shares:
            backward(x, y, model, optimizer, torch.tensor(indices))
            found.append([one.grad.numpy().copy() for one in model.parameters()])
        for i, one in enumerate(model.parameters()):
            one.grad.copy_(torch.from_numpy(mean_by_formula(
                [(len(indices), of[i]) for indices, of in zip(shares, found)])))
        optimizer.step()
        scheduler.step()
        if bits(model) != wanted:
            wrong.append(number)
    return wrong


class Workers(unittest.TestCase):
    """Starts workers that write their steps, and reads what they have written."""

    def setUp(self):
        self.folder = pathlib.Path(service.folder) / self.id().rsplit('.', 1)[-1]
        self.folder.mkdir()
        self.running = {}
        self.addCleanup(lambda: [(p.kill(), p.wait()) for p in self.running.values()])

    def start(self, function, rank, founders, **environment):
        self.running[rank] = ranks.start_rank(
            function, rank, founders, TEST_FOLDER=str(self.folder), TEST_JOB=self.folder.name,
            **environment)

    def end(self):
        found = ranks.finish_ranks(list(self.running.values()))
        return dict(zip(self.running, found))

    def lines(self, rank):
        return lines_of(self.folder, rank)

    def await_step(self, rank, number):
        until(lambda: any(line.get('number', 0) >= number and 'bits' in line
                          for line in self.lines(rank)) or self.running[rank].poll() is not None,
              f'rank {rank} trains step {number}', ranks.RANK_TIMEOUT_S)

    def steps(self):
        """Returns {number: ({rank: line with samples}, {bits after the step})}."""
        found = collections.defaultdict(lambda: ({}, set()))
        for rank in range(3):
            for line in self.lines(rank):
                if 'bits' in line:
                    found[line['number']][1].add(line['bits'])
                elif 'number' in line:
                    found[line['number']][0][rank] = line
        return found

    def check_bits(self, without=(None, None)):
        """Checks that all workers have the bits of the replay. `without`: (step, rank) whose
        gradient was not used."""
        steps = []
        for number, (of_ranks, all_bits) in sorted(self.steps().items()):
            self.assertEqual(len(all_bits), 1, f'step {number}: workers have different models')
            shares = [line['indices'] for rank, line in sorted(of_ranks.items())
                      if line['weight'] and (number, rank) != without]
            steps.append((number, next(iter(all_bits)), shares))
        return ranks.apart(replay, steps)

    def used(self):
        return collections.Counter((line['epoch'], index) for of_ranks, _ in self.steps().values()
                                   for line in of_ranks.values() for index in line['indices'])

    def check_resized(self):
        """Checks that the job had 2, 3 and 2 workers, and that each epoch used each sample once."""
        places = collections.defaultdict(list)
        for number, (of_ranks, _) in sorted(self.steps().items()):
            for rank, line in sorted(of_ranks.items()):
                for index in line['indices']:
                    places[line['epoch'], index].append((number, rank))
        self.assertEqual({sample: at for sample, at in places.items() if len(at) > 1}, {})
        epochs = {epoch for epoch, _ in places}
        self.assertEqual(len(places), SAMPLES * len(epochs))
        present = [len([1 for line in of_ranks.values() if line['weight']])
                   for _, (of_ranks, _) in sorted(self.steps().items()) if len(of_ranks) > 1]
        self.assertEqual((present[0], max(present), present[-2]), (2, 3, 2))

    def resize(self, function):
        """Runs a job of 2, 3 and 2 workers. Returns their results."""
        for rank in range(2):
            self.start(function, rank, 2)
        until(lambda: {'grows': 1} in self.lines(0) or self.running[0].poll() is not None,
              'rank 0 resizes', ranks.RANK_TIMEOUT_S)
        self.start(function, 2, 2)
        return self.end()


class Runs(Workers):
    def test_a_job_of_2_3_2_workers_uses_each_sample_once_with_the_bits_of_a_replay(self):
        self.assertEqual(self.resize('rank_resizes'),
                         {0: ['closed', True], 1: ['closed', False], 2: ['left', False]})
        self.check_resized()
        self.assertEqual(self.check_bits(), [])

    def test_a_late_worker_runs_the_end_of_the_epoch_whose_state_it_gets(self):
        self.start('rank_ends_epochs', 0, 1)
        self.await_step(0, 1)
        self.start('rank_ends_epochs', 1, 1)
        found = self.end()
        self.assertGreaterEqual(len(found[1]), GROWS)
        self.assertEqual({epoch: found[0].get(epoch) for epoch in found[1]}, found[1])

    def test_a_worker_killed_with_9_loses_no_sample_and_a_replay_has_the_same_bits(self):
        for rank in range(3):
            self.start('rank_trains', rank, 3)
        self.await_step(1, 20)
        killed = self.running.pop(1)
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        self.assertEqual(self.end(), {0: ['trained', False, True],
                                      2: ['trained', False, False]})
        used = self.used()
        self.assertEqual(len(used), SAMPLES * EPOCHS)
        self.assertLessEqual(sum(used.values()) - len(used), 2 * -(-BATCH // 3))
        last = max(line['number'] for line in self.lines(1))
        # the gradient of the lost worker's last step was either used or dropped, so one replay has
        # the bits
        self.assertIn([], [self.check_bits(), self.check_bits((last, 1))])

    def test_loaders_with_processes_have_the_samples_of_the_steps(self):
        for rank in range(2):
            self.start('rank_loads', rank, 2)
        found = self.end()
        for epochs, _, ending in found.values():
            self.assertEqual((epochs, ending), (list(range(EPOCHS)), 'trained'))
        used = collections.Counter(map(tuple, found[0][1] + found[1][1]))
        self.assertEqual((len(used), set(used.values())), (SAMPLES * EPOCHS, {1}))

    def test_a_loader_that_reads_less_than_the_deal_goes_on_in_the_next_epoch(self):
        self.start('rank_loads_less_than_the_deal', 0, 1)
        used = collections.Counter(self.end()[0])
        self.assertEqual((len(used), set(used.values())), (SAMPLES, {EPOCHS}))

    def test_the_script_of_the_page_runs_unchanged(self):
        for rank in range(2):
            self.start('rank_runs_the_page', rank, 2, GRADPOOL_JOB='page',
                       GRADPOOL_RANK=str(rank), GRADPOOL_SIZE='2')
        found = self.end()
        self.assertEqual([ending for ending, _ in found.values()], ['trained', 'trained'])
        self.assertEqual(found[0][1], found[1][1])


# ---- refusals ----

def refused(words, **changes):
    """Makes a Run that must fail with these words. Returns the error's text if it lacks some."""
    import gradpool
    import torch
    from gradpool.elastic import Run
    model = changes.pop('model', None) or torch.nn.Linear(3, 1)
    trained = changes.pop('trained', None) or list(model.parameters()) or [torch.zeros(1)]
    given = {'samples': 9, 'batch': 3, 'epochs': 1, 'rank': 0, 'workers': 1, 'workers_max': 2,
             'job': os.environ['TEST_JOB'], **changes}
    try:
        Run(model, torch.optim.SGD(trained, 0.1), **given).close()
    except gradpool.GradpoolError as error:
        return [] if all(word in str(error) for word in words) else [str(error)]
    return [f'no error with {words}']


def rank_is_refused(rank, workers):
    import gradpool
    import torch
    nn = torch.nn
    wrong = refused(['codes of gradients cannot be weighed'], compression='onebit')
    wrong += refused(['lanes=True', 'leave lanes out'], lanes=True)
    wrong += refused(['SyncBatchNorm', 'use BatchNorm'], model=nn.SyncBatchNorm(3))
    wrong += refused(["'weight'", 'has sparse gradients, which cannot'],
                     model=nn.Embedding(3, 2, sparse=True))
    wrong += refused(["'weight'", 'float64', 'expected torch.float32 on cpu; call'],
                     model=nn.Linear(3, 1).double())
    wrong += refused(['without a parameter'], model=nn.Tanh())
    wrong += refused(['parameter 1 in group 0 of the optimizer',
                      ' is trained, and not averaged over the workers of Run; ',
                      'give the optimizer only parameters of the model of Run'],
                     trained=list(nn.Linear(3, 1).requires_grad_(False).parameters())[:1] +
                     list(nn.Linear(3, 1).parameters()))
    wrong += refused(['also[0]', 'without state_dict() and load_state_dict(), so'], also=[3])
    wrong += refused(['samples', 'epochs', 'at least one'], epochs=0)
    torch.distributed.init_process_group(
        'gloo', init_method=f"file://{os.environ['TEST_STORE']}", rank=0, world_size=1)
    wrong += refused(['whose process group is fixed: give the plain module'],
                     model=nn.parallel.DistributedDataParallel(nn.Linear(3, 1)))
    with gradpool.connect() as client:
        job = client.join(os.environ['TEST_JOB'] + 'b', 0, 2, durability='none', backup='static:2')
        wrong += refused(['backup workers', 'need every rank'], job=job)
    return wrong


def ones():
    import torch
    return torch.ones(2, 3)


def body_without_backward(run, model):
    for _ in run:
        pass


def body_twice(run, model):
    for _ in run:
        for _ in range(2):
            model(ones()).sum().backward()


def body_outside(run, model):
    model(ones()).sum().backward()


def body_without_steps(run, model):
    for _ in run.epochs():
        pass


def body_unused(run, model):
    for _ in run:
        model.bias.sum().backward()


def body_with_another_parameter(run, model):
    for _ in run:
        model.other = type(model.bias)(ones())
        model(ones()).sum().backward()


def body_of_other_data(run, model):
    run.loader([1, 2])


def body_that_reads_far(run, model):
    run.loader(list(range(9)), num_workers=1)


def body_that_shuffles(run, model):
    run.loader(list(range(9)), shuffle=True)


def body_that_waits(run, model):
    run.job.resize(2)


def body_that_breaks(run, model):
    for _ in run.epochs():
        for _ in run:
            model(ones()).sum().backward()
            break


def body_that_grows_too_far(run, model):
    run.resize(700)
    for _ in run:
        model(ones()).sum().backward()
        while run._resize_error is None and run._deal.step.number == 1:
            time.sleep(0.001)


BODIES = (body_without_backward, body_twice, body_outside, body_without_steps, body_unused,
          body_of_other_data, body_that_reads_far, body_that_shuffles, body_that_waits,
          body_that_grows_too_far, body_that_breaks, body_with_another_parameter)


def rank_waits_for_long(rank, workers):
    """Returns the deadlines of steps without and with GRADPOOL_TIMEOUT_MS."""
    import torch
    from gradpool.elastic import Run
    found = []
    os.environ.pop('GRADPOOL_TIMEOUT_MS', None)
    for i in range(2):
        model = torch.nn.Linear(3, 1)
        with Run(model, torch.optim.SGD(model.parameters(), 0.1), 9, 3, 1, rank=0, workers=1,
                 workers_max=2, job=f"{os.environ['TEST_JOB']}{i}") as run:
            found.append(run._gradients._timeout_ms)
        os.environ['GRADPOOL_TIMEOUT_MS'] = '70000'
    return found


def rank_loops_wrongly(rank, workers):
    """Returns the texts of errors of wrong loops."""
    import gradpool
    import torch
    texts = []
    for i, body in enumerate(BODIES):
        model = torch.nn.Linear(3, 1)
        run = gradpool.elastic.Run(model, torch.optim.SGD(model.parameters(), 0.1), 9, 3, 1, rank=0,
                                   workers=1, workers_max=2, job=f"{os.environ['TEST_JOB']}{i}")
        try:
            body(run, model)
            texts.append('no error')
        except RuntimeError as error:
            texts.append(str(error))
        finally:
            run.close()
    return texts


class Refusals(unittest.TestCase):
    def run_alone(self, function):
        name = self.id().rsplit('.', 1)[-1]
        return ranks.run_ranks(function, 1, TEST_JOB=name,
                               TEST_STORE=f'{service.folder}/{name}')[0]

    def test_a_model_or_job_that_cannot_change_its_workers_is_refused(self):
        self.assertEqual(self.run_alone('rank_is_refused'), [])

    def test_workers_wait_half_an_hour_for_a_worker_that_validates(self):
        self.assertEqual(self.run_alone('rank_waits_for_long'), [30 * 60 * 1000, 70000])

    def test_a_loop_that_other_workers_would_wait_for_is_an_error_with_advice(self):
        wanted = ('has had no backward(), for', 'a second time in one step', 'outside of a step',
                  'of Run has had no step', "no gradient to 'weight'", 'a data set of 2 samples',
                  'steps ahead, Run() deals', 'Run deals the samples, and',
                  'call resize() of the Run', '700',
                  'was left before its last step',
                  'give the model all parameters, and set requires_grad, before Run()')
        texts = self.run_alone('rank_loops_wrongly')
        for words, text in zip(wanted, texts, strict=True):
            self.assertIn(words, text)


if __name__ == '__main__':
    ranks.main(globals(), forks=True)
