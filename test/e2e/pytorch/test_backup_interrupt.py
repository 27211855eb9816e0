"""Tests gradpool.ddp.attach(backup=Backup(stragglers='interrupt')) on a real service: a rank leaves
"with attachment.work():" when its round has closed. Each rank is a process.

The ranks of a test choose the sets, as in test_backup_door. A rank outside the set of a round waits
in the middle of its forward() until it sees that the round is closed."""
import itertools
import time
import unittest.mock

import harness
import ranks
import test_backup_door
import test_ddp
from test_backup_door import clip, Reports, ROUNDS, set_of, train_alone_by_sets
from test_ddp import attach, setUpModule, tearDownModule  # noqa: F401 (found by name)
from test_ddp_steps import EXACT, halving

WORKERS, FIRST = 3, 4
SECONDS, SLOW, SLOW_S = 30, 2, 0.08  # rounds of a job with second gradients; its slow rank


def with_pause(torch):
    """Returns a net with running statistics before a module that calls net.pause()."""
    class Pause(torch.nn.Module):
        def forward(self, values):
            net.pause()
            return values
    nn = torch.nn
    net = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), Pause(), nn.ReLU(),
                        nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
    net.pause = lambda: None
    return net


class Rank(test_ddp.Rank):
    def make_net(self):
        return with_pause(self.torch)


class Alone(test_backup_door.Alone):
    def make_net(self):
        return with_pause(self.torch)


def alone(optimizer_of, of_ranks, prepare):
    with unittest.mock.patch.object(test_backup_door, 'Alone', Alone):
        return train_alone_by_sets(optimizer_of, of_ranks, prepare)[0].digest()


def train(trainer, attachment, name):
    """Returns [[number of the batch, newest round, whether no gradient counts, whether the body was
    left]]."""
    reports, bodies = Reports(trainer.rank, name), []
    batches = [(i, trainer.batch()) for i in range(ROUNDS)]

    def pause():
        number = attachment.round + 1
        if trainer.rank in set_of(number) or not bodies:
            reports.hold_back(number)       # the first gradient of a rank is always computed
        else:
            harness.until(lambda: attachment.job.passed() >= number, 'the rank sees the close',
                          ranks.RANK_TIMEOUT_S)
    trainer.net.pause = pause
    for i, batch in itertools.chain(attachment.batches(batches, FIRST),
                                    attachment.batches(batches, ROUNDS - FIRST)):
        dropped = attachment.dropped
        with attachment.work() as work:
            trainer.optimizer.zero_grad(set_to_none=True)
            test_backup_door.backward(trainer, batch)
        bodies.append([i, attachment.round, work.is_left or attachment.dropped > dropped,
                       work.is_left])
        reports.say(attachment.round)
    trainer.net.pause = lambda: None
    attachment.settle()
    return bodies


def rank_leaves(rank, workers):
    """Trains with steps of lanes and of the script. Returns {name: results}."""
    import gradpool
    import torch.distributed
    found = {}
    for name, is_again in ('lanes', False), ('script', True):
        trainer = Rank.beside(rank, workers) if found else Rank(rank, workers)
        optimizer = trainer.optimizer = EXACT['sgd'](trainer.torch, trainer.net)
        schedule = halving(trainer.torch, optimizer)
        backup = gradpool.Backup('static:2', stragglers='interrupt', again=is_again)

        def step(trainer=trainer, optimizer=optimizer, schedule=schedule):
            clip(trainer.net, trainer.torch)
            optimizer.step()
            schedule.step()
        steps = {'optimizer': optimizer, 'step': schedule.step} if name == 'lanes' else {
            'step': step}
        with attach(trainer, job=name, backup=backup, **steps) as attachment:
            mine, of_ranks = train(trainer, attachment, name), [None] * workers
            counts = [attachment.round, attachment.missed, attachment.left]
            passes = trainer.net[1].num_batches_tracked.item()
        torch.distributed.all_gather_object(of_ranks, [body[:3] for body in mine])
        hooks = sum(len(part._forward_pre_hooks) for part in trainer.model.modules())
        found[name] = {'digest': trainer.digest(), 'bodies': mine, 'counts': counts,
                       'passes': passes, 'hooks': hooks,
                       'wanted': alone(EXACT['sgd'], of_ranks, clip if name == 'script' else
                                       lambda net, torch: None)}
    return found


def rank_computes_again(rank, workers):
    """Ranks 0 and 1 leave second gradients of a round that rank 2 closes. Returns [digest, number
    of left bodies] with steps of lanes and of the script."""
    import gradpool
    found = []
    for name in 'lanes', 'script':
        trainer = Rank.beside(rank, workers) if found else Rank(rank, workers)
        optimizer = trainer.optimizer
        steps = {'optimizer': optimizer} if name == 'lanes' else {'step': optimizer.step}
        backup = gradpool.Backup('static:3', gradients=2, stragglers='interrupt')
        with attach(trainer, job=f'{name} again', backup=backup, **steps) as attachment:
            def pause(attachment=attachment):
                if attachment._rounds.goes_on:
                    harness.until(lambda: attachment.job.passed() > attachment.round,
                                  'the rank sees the close', ranks.RANK_TIMEOUT_S)
                elif rank == SLOW:
                    time.sleep(SLOW_S)
            trainer.net.pause = pause
            for batch in attachment.batches([trainer.batch() for _ in range(7)], SECONDS):
                with attachment.work():
                    test_backup_door.backward(trainer, batch)
            trainer.net.pause = lambda: None
            attachment.settle()
            found.append([trainer.digest(), attachment.left])
    return found


def rank_evaluates(rank, workers):
    """Each rank calls forward() again behind its backward(), and waits there until the next round
    is closed if this rank is outside its set. Returns [digest, number of left bodies, the same by
    the with statements, those with a gradient] with steps of lanes and of the script."""
    import gradpool
    found = []
    for name in 'lanes', 'script':
        trainer = Rank.beside(rank, workers) if found else Rank(rank, workers)
        optimizer, reports, bodies = trainer.optimizer, Reports(rank, f'{name} behind'), []
        steps = {'optimizer': optimizer} if name == 'lanes' else {'step': optimizer.step}
        backup = gradpool.Backup('static:2', stragglers='interrupt')
        with attach(trainer, job=f'{name} behind', backup=backup, **steps) as attachment:
            def pause(attachment=attachment, reports=reports, bodies=bodies):
                number = attachment.round + 1
                if not bodies:
                    reports.hold_back(number)
                elif rank not in set_of(number) and number <= ROUNDS:
                    harness.until(lambda: attachment.job.passed() >= number,
                                  'the rank sees the close', ranks.RANK_TIMEOUT_S)
            trainer.net.pause = pause
            for batch in attachment.batches([trainer.batch() for _ in range(7)], ROUNDS):
                before = attachment.round
                with attachment.work() as work:
                    test_backup_door.backward(trainer, batch)
                    reports.say(attachment.round)
                    if bodies:
                        trainer.net(batch)
                bodies.append([work.is_left, work.is_left and attachment.round > before])
            trainer.net.pause = lambda: None
            attachment.settle()
            found.append([trainer.digest(), attachment.left, *map(sum, zip(*bodies))])
    return found


def rank_leaves_an_open_round(rank, workers):
    """The lane that closed a round was lost, so a left second gradient is wanted again. Returns the
    batches of the loop, whether a request of the open round was awaited, and the loss."""
    from gradpool._model.backup_rounds import Backup, BackupRounds
    from gradpool._native.backup import EndOfRound
    again = EndOfRound(0, 0, 0, 0, False, 0, True)
    job, way, works = unittest.mock.Mock(), unittest.mock.Mock(), unittest.mock.Mock()
    job.skip_round.return_value, way.take_next.return_value = again, False
    rounds = BackupRounds(job, None, way, unittest.mock.Mock(ms=1000),
                          Backup('static:2', gradients=2, stragglers='interrupt'), None, works)
    request, batches, losses = unittest.mock.Mock(), [], []
    for batch in rounds.batches('abc', 1):
        batches.append(batch)
        losses.append(str(rounds.loss))
        works.was_left = len(batches) == 2
        if len(batches) == 1:
            rounds._count(again)
            rounds.kept = [request]
        elif works.was_left:
            rounds.loss = 0.5
        else:
            rounds._count(EndOfRound(1, 0, 2, 2, False, 2, False))
    return batches, request.wait.called, losses


class Interrupt(test_ddp.Case):
    def check(self, transport):
        of_ranks = self.run_ranks('rank_leaves', WORKERS, GRADPOOL_TRANSPORT=transport)
        for name in 'lanes', 'script':
            first = of_ranks[0][name]
            for rank, of_rank in enumerate(of_ranks):
                found = of_rank[name]
                self.assertEqual(found['digest'], first['wanted'], name)
                self.check_rank(name, rank, found)

    def check_rank(self, name, rank, found):
        """Checks that the rank has left each body but the first whose round closed without it, and
        that a left body has changed no running statistics."""
        wanted = [number for number in range(1, ROUNDS + 1) if rank in set_of(number)]
        bodies, lost = found['bodies'], [is_lost for *_, is_lost, _ in found['bodies']]
        self.assertEqual([number for _, number, is_lost, _ in bodies if not is_lost], wanted)
        left = [is_left for *_, is_left in bodies]
        self.assertEqual(left[1:], lost[1:])
        self.assertFalse(left[0])
        self.assertGreater(sum(left), 0)
        self.assertEqual(found['counts'], [ROUNDS, ROUNDS - len(wanted), sum(left)])
        self.assertEqual(found['passes'], len(bodies) - sum(left))
        self.assertEqual(found['hooks'], 0)
        again = [a[0] == b[0] for a, b in zip(bodies, bodies[1:])]
        self.assertEqual(again, [name == 'script' and is_lost for is_lost in lost[:-1]])

    def test_a_rank_leaves_work_for_a_closed_round_over_shared_memory(self):
        self.check('shm')

    def test_a_rank_leaves_work_for_a_closed_round_over_tcp(self):
        self.check('tcp')

    def test_a_rank_leaves_a_second_gradient_of_a_closed_round(self):
        of_ranks = self.run_ranks('rank_computes_again', WORKERS)
        for of_steps in zip(*of_ranks):
            self.all_equal([digest for digest, _ in of_steps])
            self.assertGreater(sum(left for _, left in of_steps), 0)

    def test_a_rank_stays_in_a_body_whose_gradient_was_sent(self):
        of_ranks = self.run_ranks('rank_evaluates', WORKERS)
        for of_steps in zip(*of_ranks):
            self.all_equal([digest for digest, *_ in of_steps])
            for _, left, is_left, has_lost_a_gradient in of_steps:
                self.assertEqual(left, is_left)
                self.assertEqual(has_lost_a_gradient, 0)
            self.assertGreater(sum(left for _, left, *_ in of_steps), 0)

    def test_a_left_gradient_of_an_open_round_is_computed_again(self):
        self.assertEqual(self.run_ranks('rank_leaves_an_open_round', 1),
                         [[['a', 'b', 'b'], False, ['nan'] * 3]])


if __name__ == '__main__':
    ranks.main(globals(), forks=True)
