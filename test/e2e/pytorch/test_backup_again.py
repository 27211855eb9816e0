"""Tests gradpool.ddp.attach(backup=Backup(gradients=)) on a real service: a fast rank computes
another gradient on the same parameters while the round waits for a slow rank. Each rank is a
process. Afterwards one process computes the parameters from the batches that were counted."""
import time

import ranks
import test_backup_door
import test_ddp
from test_backup_door import Alone, clip
from test_ddp import attach, Rank, setUpModule, tearDownModule  # noqa: F401 (found by name)
from test_ddp_steps import EXACT

WORKERS, ROUNDS, SLOW, SLOW_S = 3, 30, 2, 0.08
ATTEMPTS = 5
BATCHES = 7     # fewer than rounds, so the loader begins again


def train(trainer, attachment):
    """Returns (numbers of the batches in the order of the bodies, {round: batches that counted,
    number of dropped gradients after them})."""
    bodies, rounds, given = [], {}, []
    batches = [(i, trainer.batch()) for i in range(BATCHES)]
    for i, batch in attachment.batches(batches, ROUNDS):
        before, dropped = attachment.round, attachment.dropped
        time.sleep(SLOW_S if trainer.rank == SLOW else 0)
        test_backup_door.backward(trainer, batch)
        bodies.append(i)
        given.append(i)
        if attachment.round > before:
            lost = attachment.dropped - dropped
            rounds[attachment.round] = given[:len(given) - lost], given[len(given) - lost:]
            given = []
    attachment.settle()
    return bodies, rounds


def train_alone(optimizer_of, of_ranks, prepare):
    """Trains in this process with the gradients of each round, by rank, then by number."""
    each = [Alone(rank) for rank in range(WORKERS)]
    data = [[one.batch() for _ in range(BATCHES)] for one in each]
    net, torch = each[0].net, each[0].torch
    optimizer = optimizer_of(torch, net)
    for number in range(1, ROUNDS + 1):
        shares = []
        for rank, (_, rounds) in enumerate(of_ranks):
            for batch in rounds.get(number, ((), ()))[0]:
                net.zero_grad(set_to_none=True)
                net(data[rank][batch]).square().mean().backward()
                shares.append([p.grad for p in net.parameters()])
        for parameter, *gradients in zip(net.parameters(), *shares):
            parameter.grad = test_ddp.mean_in_rank_order(None, gradients)
        prepare(net, torch)
        optimizer.step()
    return each[0].digest()


def rank_trains(rank, workers):
    """Returns {kind of steps: [digest, digest of one process, bodies, rounds]}."""
    import gradpool
    import torch.distributed
    found = {}
    for name in 'lanes', 'script':
        trainer = Rank.beside(rank, workers) if found else Rank(rank, workers)
        optimizer_of = EXACT['sgd']
        optimizer = trainer.optimizer = optimizer_of(trainer.torch, trainer.net)
        backup, options = gradpool.Backup('static:3', gradients=3), {'optimizer': optimizer}

        def step(trainer=trainer, optimizer=optimizer):
            clip(trainer.net, trainer.torch)
            optimizer.step()
        if name == 'script':
            options = {'step': step}
        with attach(trainer, job=name, backup=backup, **options) as attachment:
            mine, of_ranks = train(trainer, attachment), [None] * workers
        torch.distributed.all_gather_object(of_ranks, mine)
        wanted = train_alone(optimizer_of, of_ranks,
                             clip if name == 'script' else lambda net, torch: None)
        found[name] = [trainer.digest(), wanted, mine[0], list(mine[1].values())]
    return found


class Again(test_ddp.Case):
    def check(self, transport):
        """On a busy host all ranks may be equally slow, so one of several jobs must have rounds
        with several gradients of a rank, and a batch whose gradient came after the close."""
        several = lost = 0
        for _ in range(ATTEMPTS):
            for of_rank in self.run_ranks('rank_trains', WORKERS, GRADPOOL_TRANSPORT=transport):
                for name, (digest, wanted, bodies, rounds) in of_rank.items():
                    self.assertEqual(digest, wanted, name)
                    self.check_repeated(bodies, rounds)
                    several += sum(len(counted) > 1 for counted, _ in rounds)
                    lost += sum(len(dropped) for counted, dropped in rounds if counted)
            if several and lost:
                return
        self.fail(f'{several} rounds with several gradients, {lost} dropped gradients')

    def check_repeated(self, bodies, rounds):
        """Checks that the batches of gradients in flight at a close were yielded again next."""
        at = 0
        for counted, dropped in rounds:
            at += len(counted) + len(dropped)
            if counted and dropped:
                self.assertEqual(bodies[at:at + len(dropped)], dropped[:len(bodies) - at])

    def test_several_gradients_have_the_bits_of_one_process_over_shared_memory(self):
        self.check('shm')

    def test_several_gradients_have_the_bits_of_one_process_over_tcp(self):
        self.check('tcp')


if __name__ == '__main__':
    ranks.main(globals(), forks=True)
