"""Tests gradpool.ddp.attach(backup=) on a real service: ranks that are passed, the loop over
batches(), and settle(). Each rank is a process.

The ranks of a test choose the sets: a rank outside the set of a round sends its gradient only after
other ranks report that the round is closed."""
import itertools
import os
import pathlib
import signal
import sys
import time

import harness
import ranks
import test_ddp
from test_ddp import attach, Rank, setUpModule, tearDownModule  # noqa: F401 (found by name)
from test_ddp_steps import CLOSE, EXACT, halving, TOLERANCE

WORKERS, ROUNDS, STOPPED_ROUNDS = 3, 12, 50
FIRST = 4       # number of rounds of the first loop; rank 2 is in no set of rounds 3 to 5
# Sets of rounds 1, 2, ..., which repeat. In its second forward() DistributedDataParallel waits for
# all ranks, so each rank must be in the set of round 1 or of round 2.
SETS = (0, 1), (1, 2), (0, 1), (0, 1), (0, 1), (1, 2), (0, 2)
RULES, RULE_ROUNDS = ('auto', 'dbw', 'adasync:2'), 25
RULES_OF_STEPS = 'auto', 'blind', 'adasync:2'   # with steps of the script
MADE = {name: {**EXACT, **CLOSE}[name] for name in ('sgd', 'nesterov', 'adam')}


def set_of(number):
    return SETS[(number - 1) % len(SETS)]


class Reports:
    """The newest round of each rank, in files that all ranks read. `name`: name of the model."""

    def __init__(self, rank, name):
        self.rank, self.folder = rank, pathlib.Path(os.environ['TEST_STORE'] + f'.{name}')
        self.folder.mkdir(exist_ok=True)

    def say(self, number):
        written = self.folder / f'.{self.rank}'
        written.write_text(str(number), encoding='ascii')
        written.rename(self.folder / str(self.rank))

    def newest(self):
        return max((int(path.read_text(encoding='ascii')) for path in self.folder.glob('[0-9]*')),
                   default=0)

    def hold_back(self, number):
        """Waits until the last of consecutive rounds without this rank is closed."""
        if self.rank in set_of(number):
            return
        while number < ROUNDS and self.rank not in set_of(number + 1):
            number += 1
        harness.until(lambda: self.newest() >= number, f'round {number} is closed',
                      ranks.RANK_TIMEOUT_S)


def backward(trainer, batch):
    trainer.optimizer.zero_grad(set_to_none=True)
    loss = trainer.model(batch).square().mean()
    loss.backward()


def train_by_sets(trainer, attachment, name):
    """Returns [[number of the batch, newest round, whether the gradient was dropped]]."""
    reports, bodies = Reports(trainer.rank, name), []
    batches = [(i, trainer.batch()) for i in range(ROUNDS)]
    for i, batch in itertools.chain(attachment.batches(batches, FIRST),
                                    attachment.batches(batches, ROUNDS - FIRST)):
        trainer.optimizer.zero_grad(set_to_none=True)
        loss = trainer.model(batch).square().mean()
        reports.hold_back(attachment.round + 1)
        dropped = attachment.dropped
        loss.backward()
        bodies.append([i, attachment.round, attachment.dropped > dropped])
        reports.say(attachment.round)
    attachment.settle()
    return bodies


class Alone(Rank):
    """Model and data of a rank, without a process group."""

    def __init__(self, rank):
        import torch
        self.torch, self.rank = torch, rank
        torch.manual_seed(1)
        self.model = self.net = self.make_net()
        self.generator = torch.Generator().manual_seed(100 + rank)


def clip(net, torch):
    torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)


def train_alone_by_sets(optimizer_of, of_ranks, prepare=lambda net, torch: None):
    """Trains in this process with the batches whose gradients were in a set. `prepare` is called
    before each step. Returns (Rank, its scheduler)."""
    each = [Alone(rank) for rank in range(WORKERS)]
    data = [[one.batch() for _ in range(ROUNDS)] for one in each]
    net, torch = each[0].net, each[0].torch
    optimizer = optimizer_of(torch, net)
    schedule = halving(torch, optimizer)
    for number in range(1, ROUNDS + 1):
        shares = []
        for rank in set_of(number):
            batch, = [i for i, newest, is_dropped in of_ranks[rank]
                      if newest == number and not is_dropped]
            net.zero_grad(set_to_none=True)
            net(data[rank][batch]).square().mean().backward()
            shares.append([p.grad for p in net.parameters()])
        for parameter, *gradients in zip(net.parameters(), *shares):
            parameter.grad = test_ddp.mean_in_rank_order(None, gradients)
        prepare(net, torch)
        optimizer.step()
        schedule.step()
    return each[0], schedule


def rank_follows_sets(rank, workers):
    """Trains with several rules. Returns {rule: results}."""
    import gradpool
    import torch.distributed
    found = {}
    for name, optimizer_of in MADE.items():
        trainer = Rank.beside(rank, workers) if found else Rank(rank, workers)
        trainer.optimizer = optimizer_of(trainer.torch, trainer.net)
        schedule = halving(trainer.torch, trainer.optimizer)
        is_again = name == 'sgd'
        backup = gradpool.Backup('static:2', again=True) if is_again else 2
        with attach(trainer, optimizer=trainer.optimizer, backup=backup,
                    step=schedule.step) as attachment:
            mine, of_ranks = train_by_sets(trainer, attachment, name), [None] * workers
        torch.distributed.all_gather_object(of_ranks, mine)
        wanted, schedule_alone = train_alone_by_sets(optimizer_of, of_ranks)
        found[name] = {
            'bodies': mine, 'digest': trainer.digest(), 'wanted': wanted.digest(),
            'is_near': all(trainer.torch.allclose(a, b, **TOLERANCE) for a, b in
                           zip(trainer.net.parameters(), wanted.net.parameters())),
            'rates': [schedule.get_last_lr(), schedule_alone.get_last_lr()],
            'counts': [attachment.round, attachment.missed, attachment.dropped]}
    return found


def rank_steps_itself(rank, workers):
    """Trains with steps of the script, which clips the means of all rounds. Returns {name:
    results}."""
    import gradpool
    import torch.distributed
    found = {}
    for name, options in {'copied': {}, 'views': {'gradient_as_bucket_view': True}}.items():
        trainer = Rank.beside(rank, workers, **options) if found else Rank(rank, workers)
        optimizer = MADE['adam'](trainer.torch, trainer.net)
        schedule, steps = halving(trainer.torch, optimizer), []

        def step(trainer=trainer, optimizer=optimizer, schedule=schedule, steps=steps):
            clip(trainer.net, trainer.torch)
            optimizer.step()
            schedule.step()
            steps.append(trainer.digest())
        with attach(trainer, backup=gradpool.Backup('static:2', lag=3), step=step) as attachment:
            mine, of_ranks = train_by_sets(trainer, attachment, name), [None] * workers
        torch.distributed.all_gather_object(of_ranks, mine)
        wanted, schedule_alone = train_alone_by_sets(MADE['adam'], of_ranks, clip)
        found[name] = {'bodies': mine, 'digest': trainer.digest(), 'wanted': wanted.digest(),
                       'steps': steps, 'is_near': True,
                       'rates': [schedule.get_last_lr(), schedule_alone.get_last_lr()],
                       'counts': [attachment.round, attachment.missed, attachment.dropped]}
    return found


def rank_is_killed(rank, workers):
    """Rank 1 is killed in round 4. Returns the errors of the others."""
    trainer, found = Rank(rank, workers), []
    attachment = attach(trainer, optimizer=trainer.optimizer, backup='static:2')
    try:
        for batch in attachment.batches([trainer.batch()], 1000000):
            if rank == 1 and attachment.round >= 3:
                os.kill(os.getpid(), signal.SIGKILL)
            backward(trainer, batch)
    except RuntimeError as error:
        found.append([type(error).__name__, str(error)])
    for attempt in lambda: trainer.model(trainer.batch()), attachment.settle:
        try:
            attempt()
        except Exception as error:
            found.append([type(error).__name__, str(error)])
    return found


def rank_is_stopped(rank, workers):
    """Rank 2 stops after two rounds, and continues when the other ranks have made all their
    rounds."""
    trainer, reports = Rank(rank, workers), Reports(rank, 'stopped')
    with attach(trainer, optimizer=trainer.optimizer, backup='static:2') as attachment:
        for batch in attachment.batches([trainer.batch()], STOPPED_ROUNDS):
            if attachment.round == 2 and rank == 2:
                reports.say(2)
                os.kill(os.getpid(), signal.SIGSTOP)
            elif attachment.round == 2:
                harness.until(lambda: reports.newest() == 2, 'rank 2 stops',
                              ranks.RANK_TIMEOUT_S)
            backward(trainer, batch)
        reports.say(attachment.round)
        attachment.settle()
        return [trainer.digest(), attachment.round]


def continue_rank_2(function, workers, **environment):
    """Starts the ranks. Rank 2 continues when the others have made all rounds."""
    processes = ranks.start_ranks(function, workers, **environment)
    folder = pathlib.Path(environment['TEST_STORE'] + '.stopped')
    try:
        harness.until(lambda: all((folder / str(rank)).exists() for rank in range(workers)),
                      'ranks 0 and 1 have made all rounds', ranks.RANK_TIMEOUT_S)
        stat = pathlib.Path('/proc', str(processes[2].pid), 'stat')
        harness.until(lambda: stat.read_text().rsplit(')', 1)[1].split()[0] == 'T',
                      'rank 2 has stopped itself', ranks.RANK_TIMEOUT_S)
    finally:
        os.kill(processes[2].pid, signal.SIGCONT)
    return ranks.finish_ranks(processes)


def rank_leaves_its_loop(rank, workers):
    """Rank 0 leaves the loop before round 4. Returns the error of settle()."""
    import gradpool
    trainer, text, reports = Rank(rank, workers), 'no error', Reports(rank, 'left')
    with attach(trainer, optimizer=trainer.optimizer, backup='static:1') as attachment:
        for body, batch in enumerate(attachment.batches([trainer.batch()], 20)):
            if attachment.round >= 3:
                harness.until(reports.newest, 'rank 0 leaves its loop', ranks.RANK_TIMEOUT_S)
            backward(trainer, batch)
            if rank == 0 and body == 1:
                reports.say(attachment.round)
                break
        try:
            attachment.settle()
        except gradpool.Mismatch as error:
            text = str(error)
        attachment.job.barrier()
    return text


def rank_goes_on(rank, workers):
    """Trains a job without backup workers. Two jobs with backup workers continue this training: one
    from the state_dict(), one from the snapshot. Their rounds count all ranks. Returns the
    digests."""
    plain = Rank(rank, workers)
    loaded, restored = Rank.beside(rank, workers), Rank.beside(rank, workers)
    path, found = os.environ['TEST_STORE'] + '.snapshot', []
    with attach(plain, job='plain', optimizer=plain.optimizer) as attachment:
        for _ in range(2):
            plain.step(plain.batch())
        attachment.job.snapshot(path)
        loaded.net.load_state_dict(plain.net.state_dict())
        loaded.optimizer.load_state_dict(plain.optimizer.state_dict())
        batches = [plain.batch(), plain.batch()]
        for batch in batches:
            plain.step(batch)
        attachment.job.barrier()
    for one in loaded, restored:
        with attach(one, job=f'job {len(found)}', optimizer=one.optimizer, backup=2) as attachment:
            if one is restored:
                attachment.restore(path)
            for batch in attachment.batches(batches, 2):
                backward(one, batch)
            attachment.settle()
        found.append(one.digest())
    return [plain.digest(), *found]


def rank_waits_too_long(rank, workers):
    """Rank 1 never calls settle(), and takes no part from round 3 on. Returns the errors of rank
    0."""
    trainer, found = Rank(rank, workers), []
    # the first rounds need less than this time also on a busy host
    attachment = attach(trainer, optimizer=trainer.optimizer, backup=2, timeout_ms=8000)

    def train(rounds):
        for batch in attachment.batches([trainer.batch()], rounds):
            backward(trainer, batch)
    train(2)
    if rank == 1:
        sys.stdin.readline()
        return found
    for attempt in attachment.settle, lambda: train(1):
        try:
            attempt()
        except RuntimeError as error:
            found.append(str(error))
    return found


class Sampler(list):
    """A list that is its own loader and sampler, and stores the epochs."""

    def __init__(self, *items):
        super().__init__(items)
        self.sampler, self.epochs = self, []

    def set_epoch(self, epoch):
        self.epochs.append(epoch)


def rank_follows_rules(rank, workers):
    """Trains with rules that choose; rank 2 works longer. Returns [digest, round] of each."""
    found = []
    for rule, is_by_lanes in [*((rule, True) for rule in RULES),
                              *((rule, False) for rule in RULES_OF_STEPS)]:
        trainer = Rank.beside(rank, workers) if found else Rank(rank, workers)
        steps = {'optimizer': trainer.optimizer} if is_by_lanes else {
            'step': trainer.optimizer.step}
        with attach(trainer, job=f'by {rule} {is_by_lanes}', backup=rule, **steps) as attachment:
            for batch in attachment.batches([trainer.batch() for _ in range(4)], RULE_ROUNDS):
                trainer.optimizer.zero_grad(set_to_none=True)
                loss = trainer.model(batch).square().mean()
                attachment.tell_loss(loss.item())
                time.sleep(0.02 if rank == 2 else 0)
                loss.backward()
            attachment.settle()
            found.append([trainer.digest(), attachment.round])
    return found


def rank_replays(rank, workers):
    """Records a job whose rank 2 is slow, and replays it with a slow rank 0, with steps of lanes
    and with steps of the script. Returns [digests of recorded job and replay, dropped gradients of
    both] for each."""
    import gradpool
    found, path = [], os.environ['TEST_STORE'] + '.sets'
    for is_by_lanes in True, False:
        digests, dropped = [], []
        for slow, files in (2, {'record': f'{path} {is_by_lanes}'}), (
                0, {'replay': f'{path} {is_by_lanes}'}):
            trainer = Rank.beside(rank, workers) if found or digests else Rank(rank, workers)
            first = first if found or digests else trainer.net.state_dict()
            first = {name: values.clone() for name, values in first.items()}
            trainer.net.load_state_dict(first)
            trainer.torch.manual_seed(rank)
            batches = [trainer.batch() for _ in range(5)]
            steps = {'optimizer': trainer.optimizer} if is_by_lanes else {
                'step': trainer.optimizer.step}
            backup = gradpool.Backup('static:2', again=not is_by_lanes, **files)
            with attach(trainer, job=f'{slow} {is_by_lanes}', backup=backup, **steps) as attached:
                for batch in attached.batches(batches, RULE_ROUNDS):
                    trainer.optimizer.zero_grad(set_to_none=True)
                    loss = trainer.model(batch).square().mean()
                    time.sleep(0.02 if rank == slow else 0.001)
                    loss.backward()
                attached.settle()
                digests.append(trainer.digest())
                dropped.append(attached.dropped)
        found.append([digests, dropped])
    return found


def rank_reads_a_loader(rank, workers):
    """One rank loops over loaders. Returns [items of two loops, epochs, items of another loader,
    rates, epochs of a second and the first loader, errors]."""
    import gradpool
    trainer = Rank(rank, workers)
    trainer.optimizer = trainer.torch.optim.SGD(trainer.net.parameters(), 1.0)
    schedule, loader = halving(trainer.torch, trainer.optimizer), Sampler(*'abcde')
    attachment = attach(trainer, optimizer=trainer.optimizer, backup=1, step=schedule.step)

    def items(loader, rounds, body=lambda: backward(trainer, trainer.batch())):
        found = []
        for item in attachment.batches(loader, rounds):
            found.append(item)
            body()
        return found

    def steps_itself():
        backward(trainer, trainer.batch())
        trainer.optimizer.step()

    def accumulates():
        with trainer.model.no_sync():
            backward(trainer, trainer.batch())
        backward(trainer, trainer.batch())
    found = [items(loader, 3) + items(loader, 4, steps_itself), loader.epochs[:],
             items('xy', 3, accumulates), attachment.round, schedule.get_last_lr(),
             attachment.settle()]
    second = Sampler(*'pq')
    items(second, 3)
    items(loader, 1)
    found += [[second.epochs, loader.epochs]]
    for attempt in (lambda: items([], 1), lambda: items(iter([]), 1),
                    lambda: items('xy', 1, lambda: None), lambda: items('xy', -1)):
        try:
            attempt()
        except gradpool.GradpoolError as error:
            found.append(str(error))
    return found


class BackupDoor(test_ddp.Case):
    def test_rules_that_choose_leave_equal_parameters_on_all_ranks(self):
        found = self.run_ranks('rank_follows_rules', WORKERS)
        self.assertEqual([number for of_rank in found for _, number in of_rank],
                         [RULE_ROUNDS] * WORKERS * len(RULES + RULES_OF_STEPS))
        for of_rank in found:
            self.assertEqual(of_rank, found[0])

    def test_a_replayed_job_has_the_same_bits(self):
        of_ranks = self.run_ranks('rank_replays', WORKERS)
        for rank, found in enumerate(of_ranks):
            for (recorded, replayed), (dropped, dropped_again) in found:
                self.assertEqual(recorded, replayed, rank)
                self.assertEqual(dropped, dropped_again, rank)
        self.assertTrue(all(dropped[0] > 0 for _, dropped in of_ranks[2]), of_ranks[2])

    def check_sets(self, transport):
        found = self.run_ranks('rank_follows_sets', WORKERS, GRADPOOL_TRANSPORT=transport)
        for name in MADE:
            of_ranks = [of_rank[name] for of_rank in found]
            for rank, of_rank in enumerate(of_ranks):
                with self.subTest(name, rank=rank):
                    self.check_rank(name, rank, of_rank)
            self.assertEqual(self.all_equal([one['digest'] for one in of_ranks]) ==
                             of_ranks[0]['wanted'], name in EXACT, name)

    def check_means(self, transport):
        found = self.run_ranks('rank_steps_itself', WORKERS, GRADPOOL_TRANSPORT=transport)
        for name, first in found[0].items():
            of_ranks = [of_rank[name] for of_rank in found]
            for rank, of_rank in enumerate(of_ranks):
                with self.subTest(name, rank=rank):
                    self.check_rank(name, rank, of_rank)
                    self.assertEqual(of_rank['steps'], first['steps'])
                    self.assertEqual(of_rank['digest'], of_rank['wanted'])
            self.assertEqual(len(set(first['steps'])), ROUNDS)

    def check_rank(self, name, rank, found):
        """Checks that the rank's gradient was counted in each round whose set has the rank, and
        in no other."""
        wanted = [number for number in range(1, ROUNDS + 1) if rank in set_of(number)]
        counted = [number for _, number, is_dropped in found['bodies'] if not is_dropped]
        dropped = sum(is_dropped for *_, is_dropped in found['bodies'])
        self.assertEqual(counted, wanted)
        self.assertEqual(found['counts'], [ROUNDS, ROUNDS - len(wanted), dropped])
        self.assertTrue(found['is_near'])
        self.assertEqual(found['rates'][0][:1], found['rates'][1][:1])
        again = [a == b for (a, *_), (b, *_) in zip(found['bodies'], found['bodies'][1:])]
        self.assertEqual(again, [name == 'sgd' and is_dropped
                                 for *_, is_dropped in found['bodies'][:-1]])

    def test_ranks_that_are_passed_end_with_the_bits_of_one_process_over_shared_memory(self):
        self.check_sets('shm')

    def test_ranks_that_are_passed_end_with_the_bits_of_one_process_over_tcp(self):
        self.check_sets('tcp')

    def test_scripts_step_once_a_round_with_the_same_bits_on_all_ranks_over_shared_memory(self):
        self.check_means('shm')

    def test_scripts_step_once_a_round_with_the_same_bits_on_all_ranks_over_tcp(self):
        self.check_means('tcp')

    def test_a_killed_rank_is_named_by_the_others(self):
        found = self.run_ranks('rank_is_killed', WORKERS, start=lose_rank_1)
        for backward_error, forward, settle in found:
            self.assertEqual(forward[0], 'PeerLost', forward)
            self.assertEqual(settle, forward)
            for _, text in backward_error, forward:
                self.assertIn('rank 1', text)

    def test_a_stopped_rank_delays_no_round_and_ends_with_the_same_parameters(self):
        found = self.run_ranks('rank_is_stopped', WORKERS, start=continue_rank_2)
        self.all_equal([digest for digest, _ in found])
        self.assertEqual([number for _, number in found], [STOPPED_ROUNDS] * WORKERS)

    def test_ranks_that_left_their_loops_in_other_rounds_are_named(self):
        for text in self.run_ranks('rank_leaves_its_loop'):
            self.assertRegex(text, r'settle\(\): ranks disagree: rank 0 brought round \d+ with '
                             r'parameters [0-9a-f]{16}; rank 1 brought round 20 with')
            self.assertIn('End each loop over batches() by its number of rounds', text)

    def test_a_round_without_enough_gradients_names_the_missing_rank_at_its_deadline(self):
        found, _ = self.run_ranks('rank_waits_too_long', start=test_ddp.release_rank_1)
        self.assertEqual(len(found), 2)
        for text in found:
            self.assertIn('no push from rank 1', text)
            self.assertIn('or raise attach(timeout_ms=), now 8 s', text)

    def test_a_loader_goes_on_in_the_next_loop_and_begins_again_when_it_ends(self):
        items, epochs, others, number, rates, settled, later, *errors = \
            self.run_ranks('rank_reads_a_loader', 1)[0]
        self.assertEqual((''.join(items), epochs), ('abcdeab', [0, 1]))
        self.assertEqual(later, [[0, 1], [0, 1, 2]])
        self.assertEqual((''.join(others), number, settled), ('xyx', 10, None))
        self.assertEqual(rates, [0.5 ** 5])
        empty, used, idle, negative = errors
        for text in empty, used:
            self.assertIn('batches(): the loader has no batch in a new pass. Give batches() a',
                          text)
        self.assertIn('1000 bodies of a loop over batches() have sent no gradient, so the loop '
                      'cannot end. Call backward() with the output of the '
                      'DistributedDataParallel model in each body', idle)
        self.assertIn('rounds is -1', negative)

    def test_moments_and_snapshots_of_other_jobs_are_continued_before_the_first_round(self):
        self.all_equal(sum(self.run_ranks('rank_goes_on'), []))


def lose_rank_1(function, workers, **environment):
    """Starts the ranks. Rank 1 must end without a result."""
    processes = ranks.start_ranks(function, workers, **environment)
    found = ranks.finish_ranks([processes[0], *processes[2:]])
    harness.finish(processes[1], ranks.RANK_TIMEOUT_S)
    return found


if __name__ == '__main__':
    ranks.main(globals(), forks=True)
