"""Tests hvd.DistributedOptimizer(backup=) on a real service: steps with the means of missed rounds,
the loop over batches(), settle(), and calls that are refused. Each rank is a process.

As in test_backup_door, a rank outside the set of a round sends its gradient only after other ranks
report that the round is closed."""
import itertools
import os
import signal
import sys
import time
import unittest.mock

import harness
import ranks
import test_backup_door
import test_ddp
from test_backup_door import (Alone, clip, FIRST, lose_rank_1, Reports, ROUNDS, set_of,
                              train_alone_by_sets)
from test_ddp import setUpModule, tearDownModule  # noqa: F401 (found by name)
from test_ddp_steps import halving

WORKERS, MANY, RULES, RULE_ROUNDS = 3, 4, ('auto', 'blind', 'adasync:2'), 25
PASSED_ROUNDS = 20


def adam(torch, net):
    return torch.optim.Adam(net.parameters(), 0.02)


def sgd(torch, net):
    return torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)


class Script(Alone):
    """Model, data and optimizer of a rank, with the calls of a script of Horovod."""
    digest = test_ddp.Rank.digest
    device = 'cpu'

    def __init__(self, rank, workers, name='script', **options):
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(workers))
        import gradpool.torch as hvd
        self.hvd = hvd
        hvd.init()
        super().__init__(rank)
        self.torch.set_num_threads(1)
        self.name = name
        self.optimizer = options.pop('optimizer_of', sgd)(self.torch, self.net)
        if options:
            self.wrap(**options)

    def wrap(self, **options):
        """Begins with the values of rank 0."""
        if self.rank:
            for parameter in self.net.parameters():
                parameter.data.zero_()
        self.hvd.broadcast_parameters(self.net.state_dict(), 0)
        self.hvd.broadcast_optimizer_state(self.optimizer, 0)
        self.optimizer = self.hvd.DistributedOptimizer(
            self.optimizer, self.net.named_parameters(), **options)

    def backward(self, batch, zero=True):
        if zero:
            self.optimizer.zero_grad(set_to_none=True)
        self.net(batch).square().mean().backward()


def train_by_sets(script):
    """Returns [[number of the batch, newest round, whether the gradient was dropped]]."""
    reports, bodies, optimizer = Reports(script.rank, script.name), [], script.optimizer
    batches = [(i, script.batch()) for i in range(ROUNDS)]
    for i, batch in itertools.chain(optimizer.batches(batches, FIRST),
                                    optimizer.batches(batches, ROUNDS - FIRST)):
        newest, dropped, missed = optimizer.round, optimizer.dropped, optimizer.missed
        reports.hold_back(newest + 1)
        script.backward(batch)
        optimizer.synchronize()
        end, is_dropped = optimizer.round, optimizer.dropped > dropped
        assert end == newest + 1 and optimizer.missed == missed + is_dropped
        reports.say(end)
        optimizer.step()
        bodies.append([i, end, is_dropped])
    optimizer.settle()
    return bodies


def rank_follows_sets(rank, workers):
    """Trains with the optimizer's own step, and with a function that clips. Returns {name:
    results}."""
    import gradpool
    found = {}
    for name, optimizer_of, prepare in ('plain', sgd, lambda net, torch: None), ('clipped', adam,
                                                                                 clip):
        script = Script(rank, workers, name, optimizer_of=optimizer_of)
        schedule, steps = halving(script.torch, script.optimizer), []

        def step(script=script, schedule=schedule, steps=steps, prepare=prepare):
            prepare(script.net, script.torch)
            script.optimizer.step()
            schedule.step()
            steps.append(script.digest())
        script.wrap(backup=gradpool.Backup('static:2', lag=3), step=step)
        mine = train_by_sets(script)
        of_ranks = script.hvd.allgather_object(mine)
        wanted, schedule_alone = train_alone_by_sets(optimizer_of, of_ranks, prepare)
        optimizer = script.optimizer
        found[name] = {'bodies': mine, 'digest': script.digest(), 'wanted': wanted.digest(),
                       'steps': steps, 'is_near': True,
                       'rates': [schedule.get_last_lr(), schedule_alone.get_last_lr()],
                       'counts': [optimizer.round, optimizer.missed, optimizer.dropped]}
    script.hvd.shutdown()
    return found


def rank_lags_behind(rank, workers):
    """The last rank works long, without a step= and with two backward() a step. Returns the
    digests of its rounds, counts, and the mean of another call of the door."""
    import torch
    steps = []

    class Recorded(torch.optim.SGD):
        def step(self, closure=None):
            super().step(closure)
            steps.append(script.digest())
    script = Script(rank, workers, optimizer_of=lambda _, net: Recorded(net.parameters(), 0.05))
    script.wrap(backup=workers - 2, backward_passes_per_step=2)
    for batch in script.optimizer.batches([script.batch() for _ in range(5)], PASSED_ROUNDS):
        time.sleep(0.03 if rank == workers - 1 else 0)
        script.backward(batch)
        script.backward(batch, zero=False)
        if rank:
            script.optimizer.step()     # rank 0 leaves the call to batches()
    script.optimizer.settle()
    mean = script.hvd.allreduce(script.torch.tensor(float(rank)), name='mean').item()
    return {'steps': steps, 'dropped': script.optimizer.dropped, 'missed': script.optimizer.missed,
            'round': script.optimizer.round, 'digest': script.digest(), 'mean': mean}


def rank_follows_rules(rank, workers):
    found = []
    for rule in RULES:
        script = Script(rank, workers, backup=rule)
        for batch in script.optimizer.batches([script.batch() for _ in range(4)], RULE_ROUNDS):
            time.sleep(0.02 if rank == workers - 1 else 0)
            script.optimizer.tell_loss(1.0)
            script.backward(batch)
            script.optimizer.step()
        script.optimizer.settle()
        found.append([script.digest(), script.optimizer.round])
    return found


def rank_is_killed(rank, workers):
    """Rank 1 is killed in round 4. Returns the errors of the others."""
    script, found = Script(rank, workers, backup='static:2'), []

    def train():
        for batch in script.optimizer.batches([script.batch()], 1000000):
            if rank == 1 and script.optimizer.round >= 3:
                os.kill(os.getpid(), signal.SIGKILL)
            script.backward(batch)
            script.optimizer.step()
    for attempt in train, script.optimizer.settle:
        try:
            attempt()
        except Exception as error:
            found.append([type(error).__name__, str(error)])
    return found


def rank_waits_too_long(rank, workers):
    """Rank 1 takes no part from round 3 on. Returns the errors of rank 0."""
    # the first rounds need less than this time also on a busy host
    os.environ['GRADPOOL_TIMEOUT_MS'] = '8000'
    script, found = Script(rank, workers, backup=2), []

    def train(rounds):
        for batch in script.optimizer.batches([script.batch()], rounds):
            script.backward(batch)
            script.optimizer.step()
    train(2)
    if rank == 1:
        sys.stdin.readline()
        return found
    for attempt in lambda: train(1), lambda: train(1), script.optimizer.settle:
        found.append(text_of(lambda _: attempt(), None))
    return found


def rank_drops_its_optimizer(rank, workers):
    """Trains folds of a cross-validation, until the tensors of all dropped optimizers are
    undeclared. Returns the names of their jobs, and the error of a layer that needs all ranks."""
    import gc
    script, jobs, text = Script(rank, workers), [], ''
    normalize = script.hvd.SyncBatchNorm(2)
    for _ in range(2):
        script.net = script.make_net()
        script.optimizer = sgd(script.torch, script.net)
        script.wrap(backup=1)
        for batch in script.optimizer.batches([script.batch()], 3):
            text = text_of(normalize, script.torch.ones(3, 2))
            script.backward(batch)
        script.optimizer.settle()
        jobs.append(script.optimizer._reducer._job)
    script.net = script.optimizer = None
    gc.collect()
    harness.until(lambda: not any(job.tensors() for job in jobs), 'all tensors are undeclared')
    return [job.name for job in jobs], text


# ---- refusals, with one rank ----

class Refused:
    """A model of one rank, and the calls of a script."""

    def __init__(self, torch, hvd):
        self.torch, self.hvd = torch, hvd
        self.net = torch.nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.net.parameters(), 0.1, momentum=0.9)

    def wrap(self, **options):
        given = {'backup': 'static:1', **options}
        self.optimizer = self.hvd.DistributedOptimizer(self.optimizer,
                                                       self.net.named_parameters(), **given)
        return self.optimizer

    def backward(self):
        self.optimizer.zero_grad()
        self.net(self.torch.ones(3, 4)).sum().backward()

    def backward_again(self):
        self.net(self.torch.ones(3, 4)).sum().backward()

    def train(self, *calls, **options):
        """Loops twice, with the calls in each body."""
        self.wrap(**options)
        for _ in self.optimizer.batches('ab', 2):
            for call in calls:
                call()

    def step(self):
        self.optimizer.step()

    def synchronize(self):
        self.optimizer.synchronize()

    def clip(self):
        self.torch.nn.utils.clip_grad_norm_(self.net.parameters(), 0.01)

    def clip_values(self):
        self.torch.nn.utils.clip_grad_value_(self.net.parameters(), 0.01)

    def write(self):
        self.net.weight.data.zero_()

    def clear_momentum(self):
        """Writes without a new version of the tensor, as with numpy."""
        self.optimizer.state[self.net.weight]['momentum_buffer'].data.zero_()

    def load_state(self):
        self.optimizer.load_state_dict(self.optimizer.state_dict())
        self.optimizer.state[self.net.bias]['momentum_buffer'] = self.torch.ones(2)

    def drop_state(self):
        self.optimizer.state.clear()

    def raise_rate(self):
        self.optimizer.param_groups[0]['lr'] *= 2

    def freeze(self):
        self.net.bias.requires_grad_(False)

    def reduce(self):
        self.hvd.allreduce(self.torch.ones(1), name='loss')


def outside(of):
    of.wrap()
    of.backward()


def stepped_outside(of):
    of.wrap().step()


def sparse(of):
    nn = of.torch.nn
    of.net = nn.Embedding(4, 2, sparse=True)
    of.optimizer = of.torch.optim.SGD(of.net.parameters(), 0.1)
    of.train(lambda: of.net(of.torch.tensor([1])).sum().backward())


def half(of):
    of.net.half()
    of.wrap()


def frozen_before(of):
    of.net.requires_grad_(False)
    of.wrap()


def interrupted(of):
    """Raises a Ctrl-C at the end of a round, and continues."""
    gradients = of.wrap()._reducer
    for _ in of.optimizer.batches('ab', 2):
        of.backward()
        with unittest.mock.patch.object(gradients.rounds, 'end', side_effect=KeyboardInterrupt):
            try:
                of.step()
            except KeyboardInterrupt:
                of.step()


def with_gaps(of):
    of.net.weight.data = of.torch.ones(4, 2).t()
    of.wrap()


def wrapped_twice(of):
    of.wrap()
    of.wrap()


def wrapped_plainly_later(of):
    of.wrap()
    of.wrap(backup=None)


def shared(of):
    of.wrap()
    of.hvd.DistributedOptimizer(of.torch.optim.SGD(of.net.parameters(), 0.1))


def closure(of):
    of.train(lambda: of.optimizer.step(lambda: of.net(of.torch.ones(3, 4)).sum()))


def some_ranks(of):
    of.wrap(process_set=of.hvd.add_process_set([0]) if of.hvd.size() > 1 else object.__new__(
        of.hvd.ProcessSet))


def backup(*arguments, **options):
    import gradpool
    return gradpool.Backup(*arguments, **options)


WITH = 'DistributedOptimizer(backup=) with '
REFUSALS = {
    'compression': (lambda of: of.wrap(compression=of.hvd.Compression.fp16),
                    'DistributedOptimizer(backup=) with compression=: a rank cannot send the rest '
                    'of a dropped gradient. Leave compression out, or backup'),
    'codec': (lambda of: of.wrap(compression=of.hvd.Compression.onebit()), WITH + 'compression='),
    'sum': (lambda of: of.wrap(op=of.hvd.Sum), WITH + 'op=: the number of gradients differs from '
            'round to round, so there is only Average'),
    'Adasum': (lambda of: of.wrap(op=of.hvd.Adasum), WITH + 'op='),
    'divided': (lambda of: of.wrap(gradient_predivide_factor=2.0),
                WITH + 'gradient_predivide_factor='),
    'groups': (lambda of: of.wrap(groups=2), WITH + 'groups=: a round ends for all gradients '
               'together'),
    'number of groups': (lambda of: of.wrap(num_groups=2), WITH + 'groups='),
    'dense': (lambda of: of.wrap(sparse_as_dense=True), WITH + 'sparse_as_dense=', 'gradients '
              'must be dense. Set sparse=False in the embedding'),
    'stragglers': (lambda of: of.wrap(backup=backup('static:1', stragglers='interrupt')),
                   WITH + "stragglers='interrupt': an optimizer has no forward() that a rank could "
                   'leave. Leave stragglers out, or use gradpool.ddp.attach('),
    'two gradients': (lambda of: of.wrap(backup=backup('static:1', gradients=2)),
                      WITH + 'gradients=2: steps of a script use one gradient of each rank'),
    'dbw': (lambda of: of.wrap(backup='dbw'), "DistributedOptimizer(backup='dbw'): the rule needs "
            'the learning rate of each step'),
    'too many': (lambda of: of.wrap(backup=2), 'backup.k is 2 for 1 workers'),
    'unknown': (lambda of: of.wrap(backup='most'), "backup rule 'most', expected static:K"),
    'step alone': (lambda of: of.wrap(backup=None, step=print), 'DistributedOptimizer(step=) '
                   'without backup=: the script calls the function in its own loop'),
    'no function': (lambda of: of.wrap(step=3), 'DistributedOptimizer(step=3): expected a function '
                    'without arguments'),
    'half': (half, "DistributedOptimizer(backup=): parameter 'weight' is torch.float16 on cpu, "
             'expected torch.float32 on the CPU. Call float() and cpu() on the model, or leave'),
    'frozen before': (frozen_before, 'DistributedOptimizer(backup=) of an optimizer without '
                      'parameters that require gradients'),
    'gaps': (with_gaps, "parameter 'weight' is not contiguous"),
    'twice': (wrapped_twice, 'DistributedOptimizer(backup=) of an optimizer that is distributed '
              'already. Give the optimizer of torch'),
    'plainly later': (wrapped_plainly_later, 'of an optimizer that has backup workers already'),
    'shared': (shared, "DistributedOptimizer() of 'weight', which another optimizer with backup= "
               'has: give each parameter to one'),
    'outside': (outside, 'an optimizer with backup= outside of a loop over optimizer.batches(), '
                'and only that loop ends after the same round on every rank. Write "for batch in'),
    'step outside': (stepped_outside, 'outside of a loop over optimizer.batches()'),
    'no gradient': (lambda of: of.train(of.step), 'step() or synchronize() without backward() in '
                    'this body of a loop over optimizer.batches()'),
    'sparse': (sparse, "parameter 'weight' has a sparse gradient, and jobs with backup workers "
               'take dense ones: set sparse=False'),
    'clipped': (lambda of: of.train(of.backward, of.clip, of.step), "the gradient of 'weight' was "
                'changed after backward() and before step(), on the way to the other ranks. Clip '
                'and scale in the function step='),
    # torch 1.13 clips values without a new version of the gradient; torch 2 names the gradient
    'clipped values': (lambda of: of.train(of.backward, of.clip_values, of.step),
                       'changed after backward() and before step()'),
    'clipped behind': (lambda of: of.train(of.backward, of.synchronize, of.clip_values, of.step),
                       'gradients were changed between synchronize() and step(), but a rank that '
                       'misses rounds gets their means without this change'),
    'twice in a body': (lambda of: of.train(of.backward, of.step, of.backward), 'backward() a '
                        'second time in one body of a loop over batches(), after step()'),
    'too often': (lambda of: of.train(of.backward, of.backward_again, of.step), 'backward() '
                  'ran more than 1 times before step(); say so in backward_passes_per_step'),
    'too few': (lambda of: of.train(of.backward, backward_passes_per_step=2), 'ended after 1 of 2 '
                'backward(). A rank may get the mean of a missed round behind each body: put all'),
    'written': (lambda of: of.train(of.backward, of.step, of.write), 'the body of a loop over '
                'optimizer.batches() has changed parameters, but a rank that misses rounds runs '
                'the body less often. Write parameters between loops, behind settle()'),
    'written before': (lambda of: of.train(of.backward, of.write, of.step), 'has changed '
                       'parameters'),
    'rate': (lambda of: of.train(of.backward, of.step, of.raise_rate), 'has changed settings of '
             'the optimizer, but a rank that misses rounds runs the body less often. Call '
             'scheduler.step() in the function step= of DistributedOptimizer()'),
    'state': (lambda of: of.train(of.backward, of.step, of.clear_momentum), 'the body of a loop '
              'over optimizer.batches() has changed the state of the optimizer, but a rank that '
              'misses rounds runs the body less often. Load or change a state between loops, '
              'behind settle()'),
    'state loaded': (lambda of: of.train(of.backward, of.step, of.load_state),
                     'has changed the state of the optimizer'),
    'state dropped': (lambda of: of.train(of.backward, of.step, of.drop_state),
                      'has changed the state of the optimizer'),
    'interrupted': (interrupted, 'KeyboardInterrupt at the end of a round with backup workers; end '
                    'the script, or make another DistributedOptimizer'),
    'frozen': (lambda of: of.train(of.backward, of.freeze, of.step), 'parameters of the optimizer '
               'were added, removed or frozen behind DistributedOptimizer(backup=)'),
    'closure': (closure, 'step(closure) with backup=: ranks would compute the closure in different '
                'rounds'),
    'process set': (some_ranks, WITH + 'process_set=: a round has the fastest of all ranks'),
    'allreduce': (lambda of: of.train(of.reduce), "allreduce 'loss' in the body of a loop over "
                  'optimizer.batches(). A rank that misses rounds runs the body less often, so '
                  'calls of different rounds would meet. Make the call behind the loop'),
    'join': (lambda of: of.train(of.hvd.join), 'join() in the body of a loop over'),
    'settle': (lambda of: of.train(lambda: of.optimizer.settle()), 'optimizer.settle() in the body '
               'of a loop over'),
    'idle': (lambda of: of.train(), '1000 bodies of a loop over batches() have sent no gradient, '
             'so the loop cannot end. Call backward() with a loss of the parameters of the '
             'optimizer in each body'),
    'loop': (lambda of: of.wrap(backup=None).batches, "no attribute 'batches'")}


def text_of(call, of):
    try:
        call(of)
    except Exception as error:
        return str(error)
    return 'no error'


def rank_is_refused(rank, workers):
    script, found = Script(rank, workers), {}
    for name, (call, *_) in REFUSALS.items():
        of = Refused(script.torch, script.hvd)
        found[name] = text_of(call, of)
        script.hvd.shutdown()
        script.hvd.init()
    return found


def rank_differs(rank, workers):
    """Returns the texts of errors where ranks differ."""
    script = Script(rank, workers)
    net = script.torch.nn.Linear(4 + rank, 2)
    found = []
    for options, given in ({'backup': 'static:1'}, net), \
            ({'backup': 'static:1' if rank else 'auto'}, script.net):
        optimizer = script.torch.optim.SGD(given.parameters(), 0.1)
        found.append(text_of(lambda _: script.hvd.DistributedOptimizer(
            optimizer, given.named_parameters(), **options), None))
    return found


def rank_uses_one_parameter(rank, workers):
    """Each rank has a gradient of another parameter. Returns the means."""
    script = Script(rank, workers)
    script.net = script.torch.nn.Linear(1, 1)
    script.optimizer = sgd(script.torch, script.net)
    script.wrap(backup=workers)
    for _ in script.optimizer.batches('a', 1):
        (2 * (script.net.bias if rank else script.net.weight).sum()).backward()
        script.optimizer.step()
    return [parameter.grad.item() for parameter in script.net.parameters()]


class HvdBackup(test_ddp.Case):
    check_rank = test_backup_door.BackupDoor.check_rank

    def check_sets(self, transport):
        found = self.run_ranks('rank_follows_sets', WORKERS, GRADPOOL_TRANSPORT=transport)
        for name, first in found[0].items():
            for rank, of_rank in enumerate(of_rank[name] for of_rank in found):
                with self.subTest(name, rank=rank):
                    self.check_rank(name, rank, of_rank)
                    self.assertEqual(of_rank['steps'], first['steps'])
                    self.assertEqual(of_rank['digest'], of_rank['wanted'])
            self.assertEqual(len(set(first['steps'])), ROUNDS)

    def check_missed(self, transport):
        found = self.run_ranks('rank_lags_behind', MANY, GRADPOOL_TRANSPORT=transport)
        for of_rank in found:
            self.assertEqual(of_rank['steps'], found[0]['steps'])
            self.assertEqual((len(of_rank['steps']), of_rank['round']), (PASSED_ROUNDS,) * 2)
            self.assertEqual(of_rank['digest'], of_rank['steps'][-1])
            self.assertEqual(of_rank['mean'], 1.5)
        self.assertGreater(found[-1]['missed'], found[-1]['dropped'])
        self.assertGreater(found[-1]['dropped'], 0)

    def test_missed_rounds_are_steps_with_the_bits_of_one_process_over_shared_memory(self):
        self.check_sets('shm')

    def test_missed_rounds_are_steps_with_the_bits_of_one_process_over_tcp(self):
        self.check_sets('tcp')

    def test_parameters_are_equal_in_all_rounds_of_a_slow_rank_over_shared_memory(self):
        self.check_missed('shm')

    def test_parameters_are_equal_in_all_rounds_of_a_slow_rank_over_tcp(self):
        self.check_missed('tcp')

    def test_rules_that_choose_leave_equal_parameters_on_all_ranks(self):
        found = self.run_ranks('rank_follows_rules', WORKERS)
        self.assertEqual([number for of_rank in found for _, number in of_rank],
                         [RULE_ROUNDS] * WORKERS * len(RULES))
        for of_rank in found:
            self.assertEqual(of_rank, found[0])

    def test_a_killed_rank_is_named_by_the_others(self):
        for train, settle in self.run_ranks('rank_is_killed', WORKERS, start=lose_rank_1):
            self.assertEqual(train[0], 'PeerLost', train)
            self.assertEqual(settle, train)
            self.assertIn('rank 1', train[1])

    def test_a_round_without_enough_gradients_names_the_missing_rank_at_its_deadline(self):
        found, _ = self.run_ranks('rank_waits_too_long', start=test_ddp.release_rank_1)
        self.assertEqual(found, [found[0]] * 3)
        self.assertIn('no push from rank 1', found[0])
        self.assertIn('or raise GRADPOOL_TIMEOUT_MS, now 8 s', found[0])

    def test_tensors_of_a_dropped_optimizer_are_undeclared(self):
        for (first, second), text in self.run_ranks('rank_drops_its_optimizer'):
            self.assertIn('SyncBatchNorm in the body of a loop over optimizer.batches()', text)
            self.assertTrue(first.endswith('.backup1') and second.endswith('.backup2'))

    def test_a_rank_sends_zeros_for_a_parameter_without_a_gradient(self):
        self.assertEqual(self.run_ranks('rank_uses_one_parameter'), [[1.0, 1.0]] * 2)

    def test_ranks_with_other_optimizers_are_named(self):
        for parameters, rule in self.run_ranks('rank_differs'):
            self.assertIn("DistributedOptimizer(backup=), gradient of 'weight': ranks disagree: "
                          'rank 0 brought [2, 4]; rank 1 brought [2, 5]. All ranks must give the '
                          'same parameters and rule', parameters)
            self.assertIn('ranks disagree: rank 0 brought rule auto; rank 1 brought rule static:1',
                          rule)

    def test_calls_that_backup_workers_cannot_serve_are_refused(self):
        found, = self.run_ranks('rank_is_refused', 1)
        for name, (_, *words) in REFUSALS.items():
            with self.subTest(name):
                for word in words:
                    self.assertIn(word, found[name])


if __name__ == '__main__':
    ranks.main(globals(), forks=True)
