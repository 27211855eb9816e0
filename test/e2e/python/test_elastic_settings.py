"""Tests what workers of gradpool.elastic.Run share besides the model: means of reports, calls of
on_change(), the batch per worker, settings of optimizers, and shares for batch norm."""
import collections
import os
import signal
import unittest

import ranks
import test_elastic_run as rig

SAMPLES, SHARE = rig.SAMPLES, 4
setUpModule, tearDownModule = rig.setUpModule, rig.tearDownModule


def make_run(model, optimizer, rank, founders, epochs, **options):
    from gradpool.elastic import Run
    return Run(model, optimizer, SAMPLES, epochs=epochs, seed=5, job=os.environ['TEST_JOB'],
               rank=rank, workers=founders, workers_max=3, **options)


# ---- reports, changes, the batch per worker ----

class Reporter:
    """Reports in the steps of a worker: the loss on all workers, and `odd` on rank 1 in odd
    steps. Writes its own reports, and the means of the previous step."""

    def __init__(self, run, optimizer, rank):
        self.run, self.optimizer, self.rank, self.seen = run, optimizer, rank, 0
        run.on_change(self.set_rate)

    def set_rate(self, workers):
        for group in self.optimizer.param_groups:
            group['lr'] = 0.03 * workers
        rig.write(self.rank, change=workers, at=self.run._deal.step.number)

    def after(self, step):
        values = {'loss': 0.1 * step.number + 1 / (3 + self.rank)}
        if self.rank == 1 and step.number % 2:
            values['odd'] = step.number / 7
        step.report(**values)
        rig.write(self.rank, reports=step.number, values=values)

    def see(self):
        found = self.run.reported
        if found is not None and found.number > self.seen:
            rig.write(self.rank, means=found.number, of=found.epoch, values=found.values)
            self.seen = found.number


def rank_reports(rank, founders):
    """Trains until rank 0 has written the last epoch."""
    x, y, model, optimizer, scheduler = rig.training(rank)
    run = make_run(model, optimizer, rank, founders, rig.EPOCHS_MOST, batch_per_worker=SHARE,
                   reports=['loss', 'odd'], also=[scheduler])
    resizes, reporter = rig.Resizes(run), Reporter(run, optimizer, rank)
    for epoch in run.epochs():
        if any(line['epoch'] <= epoch for line in rig.lines_of(os.environ['TEST_FOLDER'], 'end')):
            break
        for step in run:
            reporter.see()
            rig.train(rank, step, x, y, model, optimizer, scheduler)
            reporter.after(step)
            if rank == 0:
                resizes.after(step)
        reporter.see()
    run.close()
    rig.write(rank, ending=run.ending)
    return run.ending


def rank_reports_to_the_end(rank, founders):
    x, y, model, optimizer, scheduler = rig.training(rank)
    run = make_run(model, optimizer, rank, founders, 1, batch=10, reports=('loss',))
    for step in run:
        rig.backward(x, y, model, optimizer, step.indices)
        step.report(loss=step.indices[:step.weight].double().mean())
        total = step.number
    return run.ending, total, list(run.reported)


# ---- settings ----

def rank_has_other_settings(rank, founders):
    """Returns the ending, or the error. Rank 1 has a different weight decay in one group. If rank 1
    is not one of the first workers, rank 0 lets the job grow, and trains until rank 1 is
    refused."""
    import gradpool
    import torch
    x, y, model, _, _ = rig.training(rank)
    groups = [{'params': model[0].parameters()},
              {'params': model[2].parameters(), 'weight_decay': 0.01 if rank else 0.0}]
    optimizer = torch.optim.SGD(groups, 0.1)
    run = make_run(model, optimizer, rank, founders, rig.EPOCHS_MOST if founders == 1 else 1,
                   batch=8)
    try:
        for step in run:
            rig.write(rank, number=step.number, bits='')
            if rank == 0 and step.number == 1 and founders == 1:
                run.resize(2)
            rig.backward(x, y, model, optimizer, step.indices)
            optimizer.step()
            if founders == 1 and rig.lines_of(os.environ['TEST_FOLDER'], 'refused'):
                break
    except gradpool.Mismatch as error:
        rig.write('refused', at=rank)
        return str(error)
    finally:
        run.close()
    return run.ending


def difference(job, mine, others, **options):
    """Returns the text of the error for two optimizers, or None."""
    import gradpool
    import torch
    from gradpool.elastic.settings import check_settings, settings_of
    found = []
    for make in (mine, others):
        model = torch.nn.Linear(2, 1)
        found.append(settings_of({'model': model, 'optimizer': make(model)}, model,
                                 options.get(make.__name__, ())))
    try:
        check_settings(job, *found, 0)
    except gradpool.Mismatch as error:
        return str(error)
    return None


def rank_compares_settings(rank, founders):
    import torch
    optim = torch.optim

    def sgd(model):
        return optim.SGD(model.parameters(), 0.1)

    def faster(model):
        return optim.SGD(model.parameters(), 0.2)

    def adam(model):
        return optim.Adam(model.parameters(), 0.1)

    def other_betas(model):
        return optim.Adam(model.parameters(), 0.1, betas=(0.5, 0.999))

    def two_groups(model):
        return optim.SGD([{'params': [model.weight]}, {'params': [model.bias]}], 0.1)

    def reversed_order(model):
        return optim.SGD([model.bias, model.weight], 0.1)

    def scheduled(model):
        optimizer = sgd(model)
        optim.lr_scheduler.StepLR(optimizer, 1)
        return optimizer

    def decayed(model):
        optimizer = scheduled(model)
        optimizer.param_groups[0]['lr'] = 0.01
        return optimizer
    pairs = ((sgd, sgd), (scheduled, decayed), (sgd, faster), (sgd, adam), (other_betas, adam),
             (sgd, two_groups), (sgd, reversed_order))
    return [difference('job j', mine, others) for mine, others in pairs] + [
        difference('job j', sgd, adam, adam=('loss',))]


# ---- batch norm ----

def rank_normalizes(rank, founders):
    """Trains with batch norm, with 4 samples in a step of three workers."""
    import torch
    torch.manual_seed(rank)
    model = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.BatchNorm1d(3),
                                torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    x, y, _, _, scheduler = rig.training(rank)
    run = make_run(model, optimizer, rank, founders, rig.EPOCHS, batch=4)
    for step in run:
        rig.train(rank, step, x, y, model, optimizer, scheduler)
    return run.ending


class Shared(rig.Workers):
    def weighted(self):
        """Returns {step: {metric: mean by the formula of the page}}."""
        weights = {(number, rank): line['weight'] for number, (of_ranks, _) in self.steps().items()
                   for rank, line in of_ranks.items()}
        sums = collections.defaultdict(lambda: [0.0, 0.0])
        for rank in range(3):
            for line in self.lines(rank):
                for name, value in line['values'].items() if 'reports' in line else ():
                    weight = weights[line['reports'], rank]
                    sums[line['reports'], name][0] += weight * value
                    sums[line['reports'], name][1] += weight
        means = collections.defaultdict(dict)
        for (number, name), (total, weight) in sums.items():
            if weight:
                means[number][name] = total / weight
        return means

    def check_reports(self):
        wanted, seen = self.weighted(), collections.Counter()
        epochs = {number: line['epoch'] for number, (of_ranks, _) in self.steps().items()
                  for line in of_ranks.values()}
        for rank in range(3):
            for line in self.lines(rank):
                if 'means' in line:
                    number = line['means']
                    self.assertEqual((line['of'], line['values']),
                                     (epochs[number], wanted[number]), f'step {number}')
                    seen[rank] += 1
        self.assertGreater(min(seen[rank] for rank in range(3)), rig.GROWS)
        self.assertTrue(any('odd' in means for means in wanted.values()))

    def check_changes(self):
        """Checks that on_change() was called at the same steps on each worker, from the worker's
        first step on."""
        changes = [{line['at']: line['change'] for line in self.lines(rank) if 'change' in line}
                   for rank in range(3)]
        self.assertEqual(changes[0], changes[1])
        self.assertEqual([workers for _, workers in sorted(changes[0].items())], [2, 3, 2])
        self.assertEqual(list(changes[2].values())[0], 3)
        self.assertLessEqual(changes[2].items(), changes[0].items())

    def test_reports_and_changes_are_the_same_on_all_workers_and_the_batch_grows(self):
        found = self.resize('rank_reports')
        self.assertEqual(found, {0: 'closed', 1: 'closed', 2: 'left'})
        self.check_resized()
        for number, (of_ranks, all_bits) in self.steps().items():
            self.assertEqual(len(all_bits), 1, f'step {number}')
            shares = [line['weight'] for line in of_ranks.values() if line['weight']]
            if len(shares) > 1 and sum(shares) == SHARE * len(shares):
                self.assertEqual(set(shares), {SHARE})
        sizes = {line['batch'] for of_ranks, _ in self.steps().values()
                 for line in of_ranks.values()}
        self.assertLessEqual({2 * SHARE, 3 * SHARE}, sizes)
        self.check_reports()
        self.check_changes()

    def test_the_last_step_has_its_means_after_the_loop(self):
        for rank in range(2):
            self.start('rank_reports_to_the_end', rank, 2)
        found = self.end()
        self.assertEqual(found[0], found[1])
        ending, steps, (number, epoch, values) = found[0]
        self.assertEqual((ending, number, epoch), ('trained', steps, 0))
        self.assertEqual(list(values), ['loss'])

    def test_a_worker_with_other_settings_is_refused_by_name(self):
        for rank in range(2):
            self.start('rank_has_other_settings', rank, 2)
        found = self.end()
        self.assertEqual(found[0], 'trained')
        for words in ('rank 1: weight_decay in group 1 of optimizer is 0.01 here and 0.0 on rank 0',
                      '; start all workers with the same settings'):
            self.assertIn(words, found[1])

    def test_a_late_worker_with_other_settings_is_refused_and_the_others_train(self):
        self.start('rank_has_other_settings', 0, 1)
        self.await_step(0, 1)
        self.start('rank_has_other_settings', 1, 1)
        found = self.end()
        self.assertEqual(found[0], 'closed')
        self.assertIn('weight_decay in group 1 of optimizer is 0.01 here and 0.0 on rank 0',
                      found[1])

    def test_settings_are_compared_by_name(self):
        self.start('rank_compares_settings', 0, 1)
        same, decayed, *texts = self.end()[0]
        self.assertEqual((same, decayed), (None, None))
        wanted = ('job j: lr in group 0 of optimizer is 0.1 here and 0.2 on rank 0;',
                  "class of optimizer is 'SGD' here and 'Adam' on rank 0 (and ",
                  'betas in group 0 of optimizer is (0.5, 0.999) here and (0.9, 0.999) on rank 0',
                  "lr in group 1 of optimizer is 'absent' here and 0.1 on rank 0 (and ",
                  "parameter 0 in group 0 of optimizer is 'weight' here and 'bias' on rank 0",
                  "reports is () here and ('loss',) on rank 0")
        for words, text in zip(wanted, texts, strict=True):
            self.assertIn(words, text)

    def test_no_worker_normalizes_one_sample_even_after_a_death(self):
        for rank in range(3):
            self.start('rank_normalizes', rank, 3)
        self.await_step(1, 20)
        killed = self.running.pop(1)
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        self.assertEqual(self.end(), {0: 'trained', 2: 'trained'})
        self.assertEqual(len(self.used()), SAMPLES * rig.EPOCHS)
        weights = {line['weight'] for of_ranks, _ in self.steps().values()
                   for line in of_ranks.values()}
        self.assertNotIn(1, weights)
        self.assertIn(0, weights)


# ---- refusals ----

def rank_is_refused(rank, workers):
    import torch
    norm = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1))
    wrong = rig.refused(["model with BatchNorm '0' has 9 samples and batch 1, and one sample has",
                         ' no statistics; use batches of two or more, or LayerNorm'],
                        model=norm, batch=1)
    wrong += rig.refused(['batch=3 and batch_per_worker=2: give one of them'], batch_per_worker=2)
    wrong += rig.refused(['batch=None and batch_per_worker=None'], batch=None)
    wrong += rig.refused(["reports='loss'", ', expected a list of different names, such as '],
                         reports='loss')
    return wrong


def body_without_reports(run, step):
    step.report(accuracy=1)


def body_that_reports_twice(run, step):
    step.report(loss=1)
    step.report(loss=2)


def body_that_reports_a_tensor(run, step):
    import torch
    step.report(loss=torch.ones(2))


def body_that_reports_too_late(run, step):
    rig.ones().requires_grad_().sum().backward()
    run.model(rig.ones()).sum().backward()
    next(iter(run))
    step.report(loss=1)


def body_that_registers_too_late(run, step):
    run.on_change(print)


BODIES = (body_without_reports, body_that_reports_twice, body_that_reports_a_tensor,
          body_that_reports_too_late, body_that_registers_too_late)


def rank_reports_wrongly(rank, workers):
    import gradpool
    import torch
    texts = []
    for i, body in enumerate(BODIES):
        model = torch.nn.Linear(3, 1)
        with gradpool.elastic.Run(model, torch.optim.SGD(model.parameters(), 0.1), 9, 3, 1, rank=0,
                                  workers=1, workers_max=2, reports=['loss'],
                                  job=f"{os.environ['TEST_JOB']}{i}") as run:
            run.model = model
            try:
                body(run, next(iter(run)))
                texts.append('no error')
            except gradpool.Mismatch as error:
                texts.append(str(error))
    return texts


class Refusals(rig.Workers):
    def run_alone(self, function):
        self.start(function, 0, 1)
        return self.end()[0]

    def test_impossible_arguments_are_refused(self):
        self.assertEqual(self.run_alone('rank_is_refused'), [])

    def test_wrong_reports_are_errors_with_advice(self):
        wanted = ("'accuracy', and Run() has reports=['loss']; say Run(reports=[..., 'accuracy'",
                  "'loss' a second time in step 1",
                  ', expected one number; report the mean over step.indices',
                  'step 1 of Run, which has', 'on_change() of Run after its first step')
        texts = self.run_alone('rank_reports_wrongly')
        for words, text in zip(wanted, texts, strict=True):
            self.assertIn(words, text)


if __name__ == '__main__':
    ranks.main(globals(), forks=True)
