"""Tests that a job grows and shrinks between the same two iterations for all tensors. Each rank
declares and pushes the tensors in its own order and at its own speed. While workers join, rank 0
waits in resize() between two iterations, or trains. A rank leaves between two of its iterations.
Two tensors have an update rule; from its first step on a late worker must have the parameters of
the other workers."""
import ast
import itertools
import os
import pathlib
import random
import subprocess
import sys
import threading
import time
import unittest

import numpy

import harness
import ranks  # sets GRADPOOL_LIBRARY, before gradpool is imported
import tap
import gradpool
from harness import Service, until

BEGIN, MOST = 2, 4  # number of workers at the start, and maximum
SIZES = [3, 4, 2, 3, 2, 4, 3, 2] * (4 if os.environ.get('GRADPOOL_TEST_LONG') else 1)
WAIT_MS = 120000
# number of elements; the last tensor has several pieces
PLAIN = {'short': 300, 'long': 150000, 'cut': 2500000}
RULED = {'weights': 2000, 'more': 700000}
PACE_S = 0.003      # longest pause in seconds between two pushes; higher ranks pause longer
SEED = tap.seed(20261122)
# Means of the gradients of each set of ranks. Rank r sends 4 to the power of r, so each mean is
# exact and identifies its ranks. Two ranks may leave between different iterations.
MEANS = {sum(4.0 ** rank for rank in present) / n: present for n in range(1, MOST + 1)
         for present in itertools.combinations(range(MOST), n)}


class Worker:
    def __init__(self, rank, workers):
        self.rank, self.chance = rank, random.Random(SEED + rank)
        self.client = gradpool.connect(transport=os.environ['ALIGNED_TRANSPORT'])
        self.job = self.client.join('job', rank, workers, workers_max=MOST)
        self.tensors = []
        for rule, sizes in self.shuffled([(None, {**PLAIN, 'stop': 1}), ('sgd', RULED)]):
            self.tensors += self.job.declare_all(dict(self.shuffled(sizes.items())), rule=rule)
        self.values = {t.name: numpy.zeros(t.elements, numpy.float32) for t in self.tensors}
        self.knows_parameters = False

    def shuffled(self, things):
        return self.chance.sample(list(things), len(things))

    def broadcast(self):
        for tensor in sorted(self.tensors, key=lambda t: t.name):
            if tensor.name in RULED:
                self.job.broadcast(tensor, self.values[tensor.name]).wait(WAIT_MS)
        self.knows_parameters = True

    def push(self, tensor, stops):
        values = self.values[tensor.name]
        time.sleep(self.chance.uniform(0, PACE_S * (1 + self.rank)))
        if tensor.name == 'stop':
            return self.job.push_pull(tensor, numpy.float32([stops]), values, 'sum')
        gradient = numpy.full(tensor.elements, 4.0 ** self.rank, numpy.float32)
        if tensor.name in RULED:
            return self.job.update(tensor, gradient, values, lr=1.0)
        return self.job.push_pull(tensor, gradient, values)

    def iterate(self, stops):
        """Runs one iteration. Returns the set of ranks of each tensor, and the parameters."""
        before = {name: float(self.values[name][0]) for name in RULED}
        requests = [self.push(tensor, stops) for tensor in self.shuffled(self.tensors)]
        for request in self.shuffled(requests):
            request.wait(WAIT_MS)
        counts = {}
        for name, result in self.values.items():
            assert (result == result[0]).all(), f'{name}: two sets of ranks in one round'
            if name in PLAIN:
                counts[name] = MEANS[float(result[0])]
            elif name in RULED and self.knows_parameters:
                counts[name] = MEANS[before[name] - float(result[0])]
        self.knows_parameters = True
        return sorted(set(counts.values())), [float(self.values[name][0]) for name in sorted(RULED)]


def rank_trains(rank, workers):
    """Trains, and writes one line for each iteration."""
    folder = pathlib.Path(os.environ['ALIGNED_FOLDER'])
    worker, count = Worker(rank, workers), 0
    if 'ALIGNED_BEGINS' in os.environ:
        worker.broadcast()
    with open(folder / f'{rank}.{os.getpid()}', 'w', buffering=1) as log:
        while not worker.values['stop'][0] and rank < worker.job.members().wanted:
            if rank == 0 and (folder / 'wanted').exists():
                wanted = int((folder / 'wanted').read_text())
                (folder / 'wanted').unlink()
                if wanted > worker.job.workers and 'ALIGNED_STANDS' in os.environ:
                    worker.job.resize(wanted, WAIT_MS)  # rank 0 pushes nothing during the resize
                # meanwhile other ranks may be in an iteration
                else:
                    threading.Thread(target=worker.job.resize, args=(wanted, WAIT_MS)).start()
            log.write(f'{worker.iterate(rank == 0 and (folder / "stop").exists())}\n')
            count += 1
    worker.client.close()
    return count


class Resizes(unittest.TestCase):
    def setUp(self):
        self.service = Service('--lanes-per-core', 2, '--scale', 'off')
        self.addCleanup(self.service.end)
        self.folder = pathlib.Path(self.service.folder) / 'aligned'
        self.folder.mkdir()
        self.running, self.logs = {}, []
        self.addCleanup(lambda: [p.kill() for p in self.running.values()])

    def start(self, rank, transport, **more):
        environment = {**os.environ, 'OMP_NUM_THREADS': '1', 'ALIGNED_FOLDER': str(self.folder),
                       'GRADPOOL_ENDPOINT': self.service.endpoint, 'ALIGNED_TRANSPORT': transport,
                       **more}
        self.running[rank] = subprocess.Popen(
            [sys.executable, '-B', os.path.abspath(__file__), '--rank', 'rank_trains', str(rank),
             str(max(BEGIN, rank + 1))], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, env=environment)
        self.logs.append(self.folder / f'{rank}.{self.running[rank].pid}')

    def end(self, rank):
        process = self.running.pop(rank)
        errors = harness.finish(process, 60)[1]
        self.assertEqual(process.returncode, 0, f'rank {rank}: {errors}')

    def lines(self, log):
        text = log.read_text() if log.exists() else ''
        return [ast.literal_eval(line) for line in text.splitlines(True) if line.endswith('\n')]

    def newest(self):
        lines = self.lines(self.logs[0])
        return lines[-1][0] if lines else None

    def await_workers(self, count):
        until(lambda: self.newest() == [tuple(range(count))] or self.running[0].poll() is not None,
              f'iterations of {count} workers', process=self.service.serve)
        if self.running[0].poll() is not None:
            self.end(0)

    def resize(self, before, wanted, transport):
        (self.folder / 'new').write_text(str(wanted))
        (self.folder / 'new').rename(self.folder / 'wanted')
        until(lambda: not (self.folder / 'wanted').exists(), f'{wanted} workers are asked for',
              process=self.service.serve)
        for rank in range(before, wanted):
            self.start(rank, transport)
        for rank in range(wanted, before):
            self.end(rank)
        self.await_workers(wanted)

    def check(self):
        """Checks that each iteration has one set for all tensors, equal on every rank."""
        first = self.lines(self.logs[0])
        for line in first:
            self.assertEqual(len(line[0]), 1, line)
        for log in self.logs[1:]:
            lines = self.lines(log)
            self.assertIn(lines[0], first, log)
            begin = first.index(lines[0])
            self.assertEqual(lines, first[begin:begin + len(lines)], log)
        return len(first)

    def grow_and_shrink(self, transport, **more):
        for rank in range(BEGIN):
            self.start(rank, transport, ALIGNED_BEGINS='1', **more)
        self.await_workers(BEGIN)
        for before, wanted in zip([BEGIN] + SIZES, SIZES):
            self.resize(before, wanted, transport)
        (self.folder / 'stop').touch()
        for rank in sorted(self.running):
            self.end(rank)
        print(f'# {transport}: {self.check()} iterations, {len(SIZES)} changes of '
              f'{len(PLAIN) + len(RULED)} tensors (seed {SEED})')

    def test_all_tensors_change_between_the_same_two_iterations_shm(self):
        self.grow_and_shrink('shm', ALIGNED_STANDS='1')

    def test_all_tensors_change_between_the_same_two_iterations_tcp(self):
        self.grow_and_shrink('tcp', ALIGNED_STANDS='1')

    def test_all_tensors_change_together_when_another_thread_grows_the_job(self):
        self.grow_and_shrink('shm')


if __name__ == '__main__':
    ranks.main(globals())
