"""Kills the coordinator at the steps of a move, one after the other. A step ends before a message
is sent or received, or before the store is written. By default every eighth step is tested over
each transport; GRADPOOL_TEST_LONG=1 tests every step. The bits of sums and of parameters with an
update rule must be those of a training without moves. After each death the route must be the old
one or the new one, and training must continue."""
import mmap
import os
import signal
import struct
import subprocess
import threading
import unittest

import numpy

import ranks  # sets GRADPOOL_LIBRARY, before gradpool is imported
import harness
import tap
import test_update_rules as rules
import gradpool
from harness import BUILD, GRADPOOL, Process, Service, until

WORKERS = 2
ELEMENTS = 1000
STEPS_MAX = 400  # more than the steps of any move
STRIDE = 1 if os.environ.get('GRADPOOL_TEST_LONG') else 8
GOES_ON = 3      # rounds that must follow each death
WAIT_MS = 90000
PRELOAD = BUILD / 'test' / 'e2e' / 'libkill_at.so'
SEED = tap.seed(20261122)


class MortalService(Service):
    """A service that kills itself at the n-th step after die_at()."""

    def __init__(self, *options):
        self.number = 0
        self.counter = None
        super().__init__(*options)

    def start(self, name='serve', listen='gradpool://127.0.0.1:0'):
        path = self.folder / 'kill-at'
        if self.counter is None:
            path.write_bytes(bytes(4))
            with open(path, 'r+b') as file:
                self.counter = mmap.mmap(file.fileno(), 4)
        self.die_at(0)
        self.serve = Process([GRADPOOL, 'serve', '--state-dir', self.state, '--listen',
                              self.endpoint or listen, '--aggregators', self.aggregators,
                              *self.options], self.folder, name,
                             {'LD_PRELOAD': str(PRELOAD), 'GRADPOOL_TEST_KILL_AT': str(path)})
        self.children.append(self.serve)
        until(self.is_up, 'the service is up', process=self.serve)
        self.endpoint = self.status()['endpoint']

    def die_at(self, step):
        self.counter[:] = struct.pack('=i', step)

    def start_again(self):
        self.number += 1
        self.start(f'serve-{self.number}')


class Training(threading.Thread):
    """Trains both ranks of a job with two tensors: one is summed, one has moments. Checks every
    result."""

    def __init__(self, client, name='job'):
        super().__init__(daemon=True)
        self.jobs = [client.join(name, rank, WORKERS) for rank in range(WORKERS)]
        self.random = numpy.random.default_rng(SEED)
        self.sums = [job.declare('sum', ELEMENTS) for job in self.jobs]
        self.adams = [job.declare('adam', ELEMENTS, rule='adam') for job in self.jobs]
        self.first = self.random.random(ELEMENTS, numpy.float32)
        self.values = [self.first.copy() for _ in self.jobs]
        self.settings = {'lr': rules.RATE, 'weight_decay': rules.DECAY, **rules.RULES['adam'][1]}
        self.gradients, self.failure, self.ends = [], None, threading.Event()
        for request in [j.broadcast(t, v) for j, t, v in zip(self.jobs, self.adams, self.values)]:
            request.wait(WAIT_MS)

    def step(self):
        parts = [self.random.random(ELEMENTS, numpy.float32) for _ in self.jobs]
        results = [numpy.zeros(ELEMENTS, numpy.float32) for _ in self.jobs]
        requests = [job.push_pull(tensor, part, result, 'sum') for job, tensor, part, result in
                    zip(self.jobs, self.sums, parts, results)]
        requests += [job.update(tensor, part, value, **self.settings) for job, tensor, part, value
                     in zip(self.jobs, self.adams, parts, self.values)]
        for request in requests:
            request.wait(WAIT_MS)
        for result in results:
            if result.tobytes() != (parts[0] + parts[1]).tobytes():
                raise AssertionError(f'round {len(self.gradients)}: another sum')
        self.gradients.append(parts)

    def run(self):
        try:
            while not self.ends.is_set():
                self.step()
                self.ends.wait(0.001)
        except Exception as error:
            self.failure = error

    def finish(self):
        """Ends the training. Returns the parameters of each rank, and the parameters of a
        training without a service."""
        self.ends.set()
        self.join(WAIT_MS / 1000)
        if self.failure:
            raise self.failure
        alone = rules.by_gradpool('adam', self.first, numpy.array(self.gradients), 'c')
        return self.values, alone.astype(numpy.float32)


class Crashes(unittest.TestCase):
    def lanes(self):
        """Waits until both aggregators are back. Returns each lane's tasks."""
        lanes = {}
        until(lambda: len(self.service.pids('up')) == 2, 'the aggregators are back',
              process=self.service.serve)
        for aggregator in self.service.serving():
            lanes.update({lane['lane']: lane['tasks'] for lane in aggregator['lanes']})
        return lanes

    def move_and_die(self, target, step):
        """Starts a move. Returns whether the service has died. The service may also die after it
        has answered."""
        self.service.die_at(step)
        move = harness.run([GRADPOOL, 'move', 'job', str(target), '--endpoint',
                            f'unix:{self.service.state}/control.sock'], check=False,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60)
        self.service.die_at(0)
        if move.returncode == 0 and self.service.ask('status', '--json').stdout:
            return False
        self.assertEqual(self.service.serve.wait(), -signal.SIGKILL)
        return True

    def goes_on(self, training, step):
        seen = len(training.gradients)
        until(lambda: training.failure or len(training.gradients) >= seen + GOES_ON,
              f'training goes on after a death at step {step}', process=self.service.serve)
        if training.failure:
            raise training.failure

    def crash_at(self, step, training):
        """Kills the service at this step of a move. Returns whether the tensors then have the old
        or the new route. None: the move has fewer steps."""
        lanes = self.lanes()
        source = next(lane for lane, tasks in lanes.items() if tasks)
        target = next(lane for lane in lanes if lane != source)
        if not self.move_and_die(target, step):
            return None
        self.service.start_again()  # the next coordinator continues a frozen task (M3 of migrator)
        until(lambda: self.service.job('job') is not None and
              {r['state'] for r in self.service.job('job')['ranks']} == {'joined'},
              'the workers are back', process=self.service.serve)
        self.goes_on(training, step)
        after, tasks = self.lanes(), sum(lanes.values())
        self.assertIn((after[source], after[target]), ((tasks, 0), (0, tasks)))
        return 'old' if after[source] else 'new'

    def crash_at_each_step(self, transport, first):
        self.service = MortalService('--scale', 'off')
        self.addCleanup(self.service.end)
        client = gradpool.connect(self.service.endpoint, transport)
        self.addCleanup(client.close)
        training = Training(client)
        training.start()
        self.assertFalse(self.move_and_die(min(self.lanes()), 0))  # moves both tensors to one lane
        routes, step = [], first
        while step < STEPS_MAX and (route := self.crash_at(step, training)):
            routes.append(route)
            step += STRIDE
        late = step - 1
        # the route is written near the end of a move, so the last steps are tested again
        while 'new' not in routes and late > step - STRIDE:
            routes.append(self.crash_at(late, training))
            late -= 1
        values, alone = training.finish()
        for value in values:
            self.assertEqual(value.tobytes(), alone.tobytes())
        old, new = routes.count('old'), routes.count('new')
        print(f'# {transport}: {old + new} of some {step} steps of a move, each with a death; the '
              f'route was the old one {old} times, the new one {new} times; '
              f'{len(training.gradients)} rounds (seed {SEED})')
        self.assertGreater(old, 2)
        self.assertGreater(new, 0)

    def test_a_coordinator_that_dies_at_any_step_of_a_move_loses_nothing_shm(self):
        self.crash_at_each_step('shm', 1)

    def test_a_coordinator_that_dies_at_any_step_of_a_move_loses_nothing_tcp(self):
        self.crash_at_each_step('tcp', (STRIDE + 1) // 2)


if __name__ == '__main__':
    tap.main()
