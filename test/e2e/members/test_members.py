"""Changes the workers of a job while it trains. Workers are killed at random times and started
again, and resizes change their number. Each gradient contains a number that identifies its rank:
every result must be the sum over the ranks that its first element names. All permanent ranks must
have equal results."""
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
import unittest
import zlib

import numpy

import harness
import ranks  # sets GRADPOOL_LIBRARY, before gradpool is imported
import tap
import gradpool
from harness import Service, until

SEED = tap.seed(20261122)
WORKERS = 4
LOSSES, RESIZES = (8, 20) if os.environ.get('GRADPOOL_TEST_LONG') else (3, 7)
WAIT_MS = 120000
# Deadline in ms. The service answers earlier; only calls that get no answer reach this deadline.
ANSWER_MS = 1000
# number of elements; the last tensor has several pieces
SIZES = {'short': 700, 'long': 60000, 'cut': 300000}
PIECE_BYTES_MAX = 256 << 10
LEAVES = 60 if os.environ.get('GRADPOOL_TEST_LONG') else 20
COMPUTES_S = 0.05  # computing time of a worker in each round, in seconds


class Sums:
    """Gradients of a rank, and the expected results. A rank's gradient is the same in all rounds,
    because a late worker does not know its round."""

    def __init__(self):
        self.known = {}

    def gradient(self, name, rank):
        """Returns the gradient. Its first element is 2 to the power of the rank, so the first
        element of a sum shows the set of ranks."""
        values = numpy.random.default_rng([rank, SIZES[name]]).random(
            SIZES[name], dtype=numpy.float32)
        values[::1000] = 2.0 ** rank
        return values

    def of(self, name, mask):
        """Returns the sum of these ranks' gradients, added in rank order."""
        if (name, mask) not in self.known:
            total = None
            for rank in range(32):
                if mask >> rank & 1:
                    values = self.gradient(name, rank)
                    total = values if total is None else total + values
            self.known[name, mask] = total
        return self.known[name, mask]


def rank_trains(rank, workers):
    """Trains until rank 0 announces the end. Writes one line for each round and tensor: the ranks
    of the sum, and a checksum of the result."""
    folder, sums = pathlib.Path(os.environ['MEMBERS_FOLDER']), Sums()
    gradients = {name: sums.gradient(name, rank) for name in SIZES}
    results = {name: numpy.empty_like(values) for name, values in gradients.items()}
    stop, stopped = numpy.zeros(1, numpy.float32), numpy.zeros(1, numpy.float32)
    with gradpool.connect(transport=os.environ['MEMBERS_TRANSPORT']) as client, \
            client.join('job', rank, workers, workers_max=int(os.environ['MEMBERS_MAX']),
                        on_worker_loss='continue') as job, \
            open(folder / f'{rank}.{os.getpid()}', 'w', buffering=1) as log:
        tensors = job.declare_all({**SIZES, 'stop': 1})
        count = 0
        resizing = None
        while not stopped[0] and rank < job.members().wanted:
            is_asked = rank == 0 and (folder / 'wanted').exists()
            if is_asked and not (resizing and resizing.is_alive()):
                wanted = int((folder / 'wanted').read_text())
                resizing = threading.Thread(target=job.resize, args=(wanted, WAIT_MS))
                resizing.start()    # waits for new and returning workers while rounds continue
                (folder / 'wanted').unlink()
            stop[0] = rank == 0 and (folder / 'stop').exists()
            job.push_pull_group([(t, gradients[t.name], results[t.name]) for t in tensors[:-1]] +
                                [(tensors[-1], stop, stopped)], 'sum').wait(WAIT_MS)
            count += 1
            time.sleep(COMPUTES_S)
            for name, values in results.items():
                mask = int(values[0])
                assert mask >> rank & 1, f'round {count} of {name} is without us: {mask:b}'
                if not numpy.array_equal(values, sums.of(name, mask)):
                    wrong = int((values != sums.of(name, mask)).sum())
                    raise AssertionError(f'round {count} of {name}, {mask:b}: {wrong} wrong')
                log.write(f'{count} {name} {mask} {zlib.crc32(values)}\n')
    return count


def rank_stops(rank, workers):
    """Runs two rounds. Rank 0 stops itself in the second round, after its push. Each of the two
    other ranks leaves when it has the result, although the other of these ranks may not have read
    its COMMIT yet. Returns the result."""
    with gradpool.connect(transport='shm') as client, \
            client.join('job', rank, workers, on_worker_loss='continue') as job:
        tensor, result = job.declare('w', 4), numpy.zeros(4, numpy.float32)
        for scale in 1, 2:
            gradient = numpy.full(4, scale * 2.0 ** rank, numpy.float32)
            request = job.push_pull(tensor, gradient, result, 'sum')
            if (rank, scale) == (0, 2):
                os.kill(os.getpid(), signal.SIGSTOP)
            request.wait(WAIT_MS)
    return result.tolist()


def rank_leaves_early(rank, workers):
    """Runs two rounds in each of LEAVES jobs, and leaves them. The last rank leaves in the third
    round, which the other ranks have not pushed. Returns the durations of its leaves in seconds."""
    folder, times = pathlib.Path(os.environ['TEST_FOLDER']), []
    with gradpool.connect(transport='tcp') as client:
        for count in range(LEAVES):
            job = client.join(f'job{count}', rank, workers, on_worker_loss='continue')
            tensor, result = job.declare('w', 4), numpy.zeros(4, numpy.float32)
            gradient = numpy.full(4, 2.0 ** rank, numpy.float32)
            for _ in range(2):
                job.push_pull(tensor, gradient, result, 'sum').wait(WAIT_MS)
                assert result[0] == (1 << workers) - 1, f'{result[0]} in job {count}'
            if rank == workers - 1:
                job.push_pull(tensor, gradient, result, 'sum')
                began = time.monotonic()
                job.leave()
                times.append(time.monotonic() - began)
                (folder / f'left{count}').touch()
            else:
                until((folder / f'left{count}').exists, 'the last rank has left')
                job.push_pull(tensor, gradient, result, 'sum').wait(WAIT_MS)
                assert result[0] == (1 << workers - 1) - 1, f'{result[0]} in job {count}'
                job.leave()
    return times


class Case(unittest.TestCase):
    AGGREGATORS = 2

    def setUp(self):
        self.service = Service('--lanes-per-core', 2, '--scale', 'off', '--piece-max',
                               PIECE_BYTES_MAX, aggregators=self.AGGREGATORS)
        self.addCleanup(self.service.end)
        self.random = random.Random(SEED)
        self.folder = pathlib.Path(self.service.folder) / 'members'
        self.folder.mkdir()
        self.ended, self.running = [], {}
        self.addCleanup(lambda: [p.kill() for p in self.running.values()])

    def start(self, rank, transport, most=WORKERS):
        environment = {**os.environ, 'OMP_NUM_THREADS': '1', 'MEMBERS_FOLDER': str(self.folder),
                       'GRADPOOL_ENDPOINT': self.service.endpoint,
                       'MEMBERS_TRANSPORT': transport, 'MEMBERS_MAX': str(most)}
        self.running[rank] = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), '--rank', 'rank_trains', str(rank),
             str(WORKERS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, env=environment)

    def log(self, rank):
        """Returns the lines written by the rank's newest process."""
        path = self.folder / f'{rank}.{self.running[rank].pid}'
        text = path.read_text() if path.exists() else ''
        return [tuple(line.split()) for line in text.splitlines(True) if line.endswith('\n')]

    def newest(self, rank):
        lines = self.log(rank)
        return int(lines[-1][2]) if lines else 0

    def check_running(self):
        for rank, process in self.running.items():
            if process.poll() is not None:
                self.fail(f'rank {rank} has ended: {process.communicate()[1]}')

    def await_set(self, members, watched=0):
        wanted = sum(1 << rank for rank in members)
        self.check_running()
        until(lambda: self.newest(watched) == wanted or self.running[watched].poll() is not None,
              f'rounds of ranks {sorted(members)}', process=self.service.serve)
        self.check_running()

    def finish(self):
        """Waits until all workers have ended without an error."""
        (self.folder / 'stop').touch()
        for rank, process in self.running.items():
            out, errors = harness.finish(process, 60)
            self.assertEqual(process.returncode, 0, f'rank {rank}: {errors}')
            self.assertGreater(int(out.splitlines()[-1]), 0)

    def check_bits(self, *who):
        """Checks that the ranks have equal sets and equal bits in each round reached by all of
        them."""
        logs = [self.log(rank) for rank in who]
        for lines in zip(*logs):
            self.assertEqual(len(set(lines)), 1, lines)
        return min(map(len, logs)) // len(SIZES)


    def check_entries(self, rank):
        """Checks that a rank that joined again is in all tensors from the same iteration on.
        Returns how often ranks joined."""
        masks, came = dict.fromkeys(SIZES, (1 << WORKERS) - 1), {}
        for count, name, mask in (line[:3] for line in self.log(rank)):
            if int(mask) & ~masks[name]:
                came.setdefault(count, set()).add(name)
            masks[name] = int(mask)
        for count, names in came.items():
            self.assertEqual(names, set(SIZES), f'in iteration {count}')
        return len(came)


class Losses(Case):
    def lose_and_come_back(self, transport, times):
        everybody = set(range(WORKERS))
        for rank in everybody:
            self.start(rank, transport)
        self.await_set(everybody)
        for _ in range(times):
            victim = self.random.randrange(2, WORKERS)
            # so that the kill happens at a random point of a round
            time.sleep(self.random.uniform(0.02, 0.4))
            self.running[victim].kill()
            self.running.pop(victim).communicate()
            self.await_set(everybody - {victim})
            self.start(victim, transport)
            self.await_set(everybody)
        self.finish()
        rounds = self.check_bits(0, 1)
        self.assertEqual(self.check_entries(0), times)
        print(f'# {transport}: {rounds} rounds, {times} workers killed and come back (seed {SEED})')

    def test_a_killed_rank_leaves_the_job_and_returns_shm(self):
        self.lose_and_come_back('shm', LOSSES)

    def test_a_killed_rank_leaves_the_job_and_returns_tcp(self):
        self.lose_and_come_back('tcp', LOSSES)

    def test_a_job_continues_after_the_loss_of_two_ranks_at_once_even_rank_0(self):
        for rank in range(WORKERS):
            self.start(rank, 'shm')
        self.await_set(range(WORKERS))
        for victim in 0, 2:
            self.running[victim].kill()
        for victim in 0, 2:
            self.running.pop(victim).communicate()
        self.await_set({1, 3}, watched=1)
        self.start(0, 'shm')
        self.await_set({0, 1, 3}, watched=1)
        self.finish()
        self.assertGreater(self.check_bits(1, 3), 1)

    def test_a_rank_beyond_the_wanted_workers_joins_after_a_resize_by_the_usual_call(self):
        with gradpool.connect(self.service.endpoint) as client:
            def join(rank):
                return client.join('grows', rank, workers=1, workers_max=4,
                                   on_worker_loss='continue')
            with join(0) as job:
                with self.assertRaises(gradpool.GradpoolError) as raised:
                    join(1)
                self.assertIn('workers, without rank 1',
                              str(raised.exception))
                with self.assertRaises(gradpool.Timeout):
                    job.resize(2, timeout_ms=100)
                with join(1):
                    job.resize(2, WAIT_MS)
                    self.assertEqual(job.members().ranks, (0, 1))

    def test_a_missing_rank_is_awaited_until_a_resize_to_the_current_size(self):
        with gradpool.connect(self.service.endpoint) as client:
            def join(rank):
                job = client.join('founds', rank, 3, on_worker_loss='continue')
                self.addCleanup(job.leave)
                return job, job.declare('w', 4)
            jobs, tensors = zip(*map(join, (0, 2)))
            results = numpy.zeros((2, 4), numpy.float32)
            pushed = [job.push_pull_group([(tensor, numpy.ones(4, numpy.float32), result)], 'sum')
                      for job, tensor, result in zip(jobs, tensors, results)]
            with self.assertRaises(gradpool.Timeout):
                pushed[0].wait(300)
            with self.assertRaises(gradpool.Timeout) as raised:
                jobs[0].resize(3, ANSWER_MS)
            self.assertIn('1 (has not joined)', str(raised.exception))
            for push in pushed:
                push.wait(WAIT_MS)
            self.assertEqual(results.tolist(), [[2] * 4] * 2)
            until(lambda: jobs[0].members().ranks == (0, 2), 'rank 0 knows who is left',
                  process=self.service.serve)
            late = threading.Thread(target=join, args=(1,))
            late.start()
            jobs[0].resize(3, WAIT_MS)
            late.join()
            self.assertEqual(jobs[0].members().ranks, (0, 1, 2))

    def test_a_job_without_elasticity_fails_with_its_killed_rank(self):
        with gradpool.connect(self.service.endpoint) as client:
            with client.join('other', 0, 2) as job:
                with self.assertRaises(gradpool.GradpoolError) as raised:
                    job.resize(1)
                self.assertIn('cannot change its 2 workers', str(raised.exception))


class Resizes(Case):
    def resize(self, transport, times):
        for rank in range(WORKERS):
            self.start(rank, transport, most=6)
        self.await_set(range(WORKERS))
        present = WORKERS
        for _ in range(times):
            wanted = self.random.choice([n for n in range(2, 7) if n != present])
            self.ask(wanted)
            for rank in range(wanted, present):
                process = self.running.pop(rank)
                errors = harness.finish(process, 60)[1]
                self.assertEqual(process.returncode, 0, f'rank {rank}: {errors}')
            for rank in range(present, wanted):
                self.start(rank, transport, most=6)
            self.await_set(range(wanted))
            present = wanted
        self.finish()
        rounds = self.check_bits(0, 1)
        print(f'# {transport}: {rounds} rounds, {times} times resized (seed {SEED})')

    def ask(self, wanted):
        (self.folder / 'new').write_text(str(wanted))
        (self.folder / 'new').rename(self.folder / 'wanted')
        until(lambda: not (self.folder / 'wanted').exists(), f'rank 0 asks for {wanted} workers',
              process=self.service.serve)

    def test_a_job_is_resized_up_and_down_shm(self):
        self.resize('shm', RESIZES)

    def test_a_job_is_resized_up_and_down_tcp(self):
        self.resize('tcp', RESIZES)


class Leaves(Case):
    def test_a_rank_that_wakes_after_the_others_left_has_their_last_round(self):
        processes = ranks.start_ranks('rank_stops', 3, GRADPOOL_ENDPOINT=self.service.endpoint)
        self.addCleanup(lambda: [process.kill() for process in processes])
        until(lambda: all(process.poll() is not None for process in processes[1:]),
              'ranks 1 and 2 have left', process=self.service.serve)
        self.service.serve.wait_for('1 workers now take part in rounds')
        until(lambda: harness.state_of(processes[0].pid) == 'T', 'rank 0 has stopped itself')
        processes[0].send_signal(signal.SIGCONT)
        self.assertEqual(ranks.finish_ranks(processes), [[14] * 4] * 3)


    def test_a_rank_that_leaves_with_an_open_round_does_not_wait_for_it_tcp(self):
        processes = ranks.start_ranks('rank_leaves_early', 3, TEST_FOLDER=str(self.folder),
                                      GRADPOOL_ENDPOINT=self.service.endpoint)
        self.addCleanup(lambda: [process.kill() for process in processes])
        times = ranks.finish_ranks(processes)[2]
        long = sum(time > 1 for time in times)
        print(f'# {LEAVES} leaves, {long} of them longer than a second: '
              f'median {statistics.median(times):.3f} s, at most {max(times):.3f} s')
        # If the COMMIT of the last round did not arrive, most leaves would wait for this COMMIT for
        # a second (LEAVE_STEP_NS). On a busy host some leaves take this time, too.
        self.assertLess(long, LEAVES / 2)


class Orders(unittest.TestCase):
    """Tests that a resize is still done after its caller has stopped waiting."""

    def setUp(self):
        service = Service(aggregators=1)
        self.addCleanup(service.end)
        self.client = gradpool.connect(service.endpoint)
        self.addCleanup(self.client.close)
        self.jobs = {rank: self.join(rank) for rank in range(WORKERS)}

    def join(self, rank):
        return self.client.join('job', rank, WORKERS, on_worker_loss='continue')

    def times_out(self, workers, *words):
        with self.assertRaises(gradpool.Timeout) as caught:
            self.jobs[0].resize(workers, ANSWER_MS)
        for word in words:
            self.assertIn(word, str(caught.exception))
        until(lambda: all(job.members().wanted == workers for job in self.jobs.values()),
              f'all know that {workers} are wanted')

    def test_a_resize_past_its_deadline_stays_in_force_until_the_next_resize(self):
        self.jobs.pop(2).leave()
        self.times_out(3, '2 (has not joined)', '3 (has not left)')
        self.times_out(4, '2 (has not joined)')
        self.jobs.pop(3).leave()
        self.jobs[2] = self.join(2)     # the missing rank may join together with another worker
        self.jobs[0].resize(3, WAIT_MS)
        until(lambda: self.jobs[1].members().ranks == (0, 1, 2), 'rank 1 knows it, too')


if __name__ == '__main__':
    ranks.main(globals())
