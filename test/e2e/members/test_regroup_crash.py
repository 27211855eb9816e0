"""Kills the coordinator at every step of a change of workers. A step ends before a message is sent
or received, or before the store is written. During the change one worker is killed, leaves or
joins. By default a few of these steps are tested; GRADPOOL_TEST_LONG=1 tests all of them. The
change must be completed or undone, and the remaining ranks must have equal bits. No step of an
update rule may be lost, repeated or made with wrong moments. Training must continue every time."""
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

import numpy

import harness
import ranks  # sets GRADPOOL_LIBRARY, before gradpool is imported
import gradpool
from harness import until
from test_migration_crash import MortalService

WORKERS, ELEMENTS = 3, 40
STAYING = 2         # number of permanent ranks: 0 and 1
STEPS_MAX = 400     # maximum number of steps, larger than that of any change
STRIDE = 1 if os.environ.get('GRADPOOL_TEST_LONG') else 160
WAIT_MS = 90000
COMPUTES_S = 0.01   # computing time of a worker in each iteration, in seconds
LINE_BYTES_MAX = 80
RATE, MOMENTUM = 0.25, 0.5
# gradient of each rank; the means of these gradients are exact
GRADIENTS = numpy.float32([6, 12, 24])


def mean_of(members):
    return numpy.float32(sum(GRADIENTS[rank] for rank in members) / len(members))


class Momentum:
    """Computes the lane's state step by step, each step with the gradients of a set of ranks."""

    def __init__(self, parameters):
        self.parameters, self.buffer = parameters, None

    def step(self, members):
        mean = numpy.full(ELEMENTS, mean_of(members), numpy.float32)
        buffer = mean if self.buffer is None else \
            self.buffer * numpy.float32(MOMENTUM) + mean
        return self.parameters - buffer * numpy.float32(RATE), buffer

    def follow(self, parameters):
        """Finds the set of ranks whose step gives these parameters, and returns it."""
        for members in (0, 1), (0, 1, 2):
            expected, buffer = self.step(members)
            if expected.tobytes() == parameters.tobytes():
                self.parameters, self.buffer = expected, buffer
                return len(members)
        raise AssertionError(f'{parameters[0]} is nobody\'s step from {self.parameters[0]}')


def wait_for(path):
    while not path.exists():
        time.sleep(0.005)


def rank_trains(rank, workers):
    """The permanent ranks check each result and write its set of ranks. The third rank joins and
    leaves."""
    folder, stays = pathlib.Path(os.environ['CRASH_FOLDER']), rank < STAYING
    if not stays:
        (folder / f'ready.{os.getpid()}').touch()
        wait_for(folder / f'go.{os.getpid()}')
    client = gradpool.connect(transport=os.environ['CRASH_TRANSPORT'])
    job = client.join('job', rank, workers, on_worker_loss='continue')
    total = job.declare('sum', ELEMENTS)
    weights = job.declare('weights', ELEMENTS, rule='momentum')
    stop = job.declare('stop', 1)
    gradient = numpy.full(ELEMENTS, GRADIENTS[rank], numpy.float32)
    result, values = numpy.zeros_like(gradient), numpy.full_like(gradient, 1000)
    followed, count, last = Momentum(values.copy()), 0, numpy.zeros(1, numpy.float32)
    if 'CRASH_BEGINS' in os.environ:
        job.broadcast(weights, values).wait(WAIT_MS)
    with open(folder / f'{rank}.{os.getpid()}', 'w', buffering=1) as log:
        while not last[0] and not (folder / f'leave.{os.getpid()}').exists():
            time.sleep(COMPUTES_S)
            last[0] = rank == 0 and (folder / 'stop').exists()  # all ranks end in the same round
            requests = [job.push_pull(total, gradient, result, 'mean'),
                        job.update(weights, gradient, values, lr=RATE, momentum=MOMENTUM),
                        job.push_pull(stop, last, last, 'sum')]
            for request in requests:
                request.wait(WAIT_MS)
            count += 1
            if stays:
                sets = [n for n in (2, 3) if (result == mean_of(range(n))).all()]
                assert len(sets) == 1, f'round {count}: {result[:3]}'
                log.write(f'{count} {sets[0]} {followed.follow(values)} {values[0]!r}\n')
    job.leave()
    client.close()
    return count


class Crashes(unittest.TestCase):
    def setUp(self):
        self.service = MortalService('--lanes-per-core', 2, '--scale', 'off')
        self.addCleanup(self.service.end)
        self.folder = pathlib.Path(self.service.folder) / 'crash'
        self.folder.mkdir()
        self.running = {}
        self.addCleanup(lambda: [p.kill() for p in self.running.values()])

    def start(self, rank, transport, **more):
        environment = {**os.environ, 'OMP_NUM_THREADS': '1', 'CRASH_FOLDER': str(self.folder),
                       'GRADPOOL_ENDPOINT': self.service.endpoint, 'CRASH_TRANSPORT': transport,
                       **more}
        process = self.running[rank] = subprocess.Popen(
            [sys.executable, '-B', os.path.abspath(__file__), '--rank', 'rank_trains', str(rank),
             str(WORKERS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, env=environment)
        if rank >= STAYING:
            until((self.folder / f'ready.{process.pid}').exists, 'the worker is ready')
        return process

    def tell(self, what, process):
        (self.folder / f'{what}.{process.pid}').touch()

    def lines(self, rank, last_bytes=0):
        path = self.folder / f'{rank}.{self.running[rank].pid}'
        if not path.exists():
            return []
        with open(path, encoding='utf-8') as log:
            log.seek(max(0, path.stat().st_size - last_bytes) if last_bytes else 0)
            return [line for line in log.read().splitlines(True) if line.endswith('\n')]

    def newest(self, rank):
        """Returns the number of workers in the rank's newest round, for both tensors."""
        words = self.lines(rank, LINE_BYTES_MAX)[-1:]
        return tuple(map(int, words[0].split()[-3:-1])) if words else None

    def check_alive(self):
        for rank in range(STAYING):
            process = self.running[rank]
            self.assertIsNone(process.poll(), process.poll() is not None and
                              f'rank {rank}: {process.communicate()[1]}')

    def is_made_by(self, count):
        self.check_alive()
        return all(self.newest(rank) == (count, count) for rank in range(STAYING))

    def has_died(self, count):
        """Returns whether the service died before a round had this many workers."""
        until(lambda: self.service.serve.child.poll() is not None or self.is_made_by(count),
              f'rounds of {count} workers', process=self.service.serve)
        self.service.die_at(0)
        if self.service.serve.child.poll() is None:
            return False
        self.assertEqual(self.service.serve.wait(), -signal.SIGKILL)
        self.service.start_again()
        return True

    def lose(self, step, politely):
        victim = self.running[STAYING]
        self.service.die_at(step)
        if politely:
            self.tell('leave', victim)
        else:
            victim.kill()
        died = self.has_died(STAYING)
        harness.finish(self.running.pop(STAYING), 60)
        until(lambda: self.is_made_by(STAYING), f'training goes on after a death at step {step}',
              process=self.service.serve)
        return died

    def come(self, step, transport):
        process = self.start(STAYING, transport)
        self.service.die_at(step)
        self.tell('go', process)
        died = self.has_died(WORKERS)
        while not self.is_made_by(WORKERS):
            # a worker whose join got no answer is started again
            if process.poll() is not None:
                self.assertTrue(died, process.communicate()[1])
                process = self.start(STAYING, transport)
                self.tell('go', process)
            time.sleep(0.01)
        return died

    def finish(self):
        (self.folder / 'stop').touch()
        for rank, process in self.running.items():
            errors = harness.finish(process, 60)[1]
            self.assertEqual(process.returncode, 0, f'rank {rank}: {errors}')
        logs = [self.lines(rank) for rank in range(STAYING)]
        for lines in zip(*logs):
            self.assertEqual(len(set(lines)), 1, lines)
        return min(map(len, logs))

    def crash_at_each_step(self, transport, first):
        for rank in range(WORKERS):
            process = self.start(rank, transport, CRASH_BEGINS='1')
            if rank >= STAYING:
                self.tell('go', process)
        until(lambda: self.is_made_by(WORKERS), 'training begins', process=self.service.serve)
        deaths = [0, 0]
        for step in range(first, STEPS_MAX, STRIDE):
            leaving = (step + 2) // 3   # a leave is tested at a third as many steps as a join
            died = (self.lose(leaving, politely=step // STRIDE % 2), self.come(step, transport))
            deaths = [before + now for before, now in zip(deaths, died)]
            if not any(died):
                break
        rounds = self.finish()
        print(f'# {transport}: {deaths[0]} deaths while a worker left, {deaths[1]} while one '
              f'joined; {rounds} rounds')
        self.assertGreater(min(deaths), 0)

    def test_a_coordinator_that_dies_at_any_step_of_a_change_of_workers_shm(self):
        self.crash_at_each_step('shm', 2)

    def test_a_coordinator_that_dies_at_any_step_of_a_change_of_workers_tcp(self):
        self.crash_at_each_step('tcp', 1 + STRIDE // 2)


if __name__ == '__main__':
    ranks.main(globals())
