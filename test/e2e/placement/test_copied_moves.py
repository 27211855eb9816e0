"""Tests moves of tasks with copies on another aggregator (--durability replica). The tasks move to
the aggregator that has their copies; their former aggregator then stores the copies (K57 of
svc/coordinator). Each aggregator dies at random steps of such moves, before it sends or receives a
message. GRADPOOL_TEST_LONG=1 tests twenty steps. No state may be lost, and training must continue
with the same bits."""
import mmap
import os
import random
import signal
import struct
import subprocess
import unittest

import ranks  # sets GRADPOOL_LIBRARY, before gradpool is imported
import tap
import test_migration_crash as crash
import gradpool
from harness import GRADPOOL, Process, Service, until

DEATHS = 20 if os.environ.get('GRADPOOL_TEST_LONG') else 2  # number of deaths of each aggregator
NEVER = 2**31 - 1
GOES_ON = 3         # rounds that must follow each death
SILENT_S = 6        # on a busy host a lane can pause for some seconds
STATES = 1          # number of copied states: one of two tensors has an update rule


class MortalAggregator(Process):
    """An aggregator that kills itself at the n-th step after die_at()."""

    def __init__(self, service, number):
        path = service.folder / f'kill-at-{number}'
        path.write_bytes(bytes(4))
        with open(path, 'r+b') as file:
            self.counter = mmap.mmap(file.fileno(), 4)
        super().__init__([GRADPOOL, 'aggregator', '--join',
                          service.endpoint.removeprefix('gradpool://'), '--cores', '0'],
                         service.folder, f'aggregator-{number}',
                         {'LD_PRELOAD': str(crash.PRELOAD), 'GRADPOOL_TEST_KILL': 'aggregator',
                          'GRADPOOL_TEST_KILL_AT': str(path), **service.operator()})

    def die_at(self, step):
        self.counter[:] = struct.pack('=i', step)

    def steps_left(self):
        return struct.unpack('=i', self.counter[:])[0]


class CopiedMoves(unittest.TestCase):
    def add_aggregator(self):
        self.number += 1
        aggregator = MortalAggregator(self.service, self.number)
        self.aggregators[aggregator.pid] = aggregator
        self.service.children.append(aggregator)
        until(lambda: set(self.service.pids()) == set(self.aggregators),
              'those aggregators are up, and no others', process=self.service.serve)

    def is_copied(self):
        use = (self.service.job('job') or {}).get('use', {})
        return use.get('states') == use.get('copied') == STATES

    def find_sides(self):
        """Waits until there is a copy. Returns (process, lane) of the owner, then of the aggregator
        with the copy."""
        until(self.is_copied, 'the state has a copy', process=self.service.serve)
        mine = self.service.job('job')['lanes']
        sides = sorted((lane['lane'] not in mine, a['pid'], lane['lane'])
                       for a in self.service.serving() for lane in a['lanes'])
        self.assertEqual([is_other for is_other, *_ in sides], [False, True])
        return [(self.aggregators[pid], lane) for _, pid, lane in sides]

    def goes_on(self, step):
        seen = len(self.training.gradients)
        until(lambda: self.training.failure or len(self.training.gradients) >= seen + GOES_ON,
              f'training goes on after a death at step {step}', process=self.service.serve)
        if self.training.failure:
            raise self.training.failure

    def move(self, step, victim):
        """Moves the job's tasks to the aggregator with the copy. Returns the process that should
        die, and the number of its steps that remain. `victim`: 0 for the owner, 1 for the other
        aggregator."""
        sides = self.find_sides()
        mortal = sides[victim][0]
        mortal.die_at(step)
        with subprocess.Popen([GRADPOOL, 'move', 'job', str(sides[1][1]), '--endpoint',
                               f'unix:{self.service.state}/control.sock'],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as mover:
            until(lambda: mover.poll() is not None or mortal.child.poll() is not None,
                  'a task has moved, or somebody died of it', process=self.service.serve)
            left = mortal.steps_left()
            mortal.die_at(0)
            mover.kill()  # without the kill, the command would retry the move for 10 s
        return mortal, left

    def count_steps(self, victim):
        """Returns the number of steps of a move. The number is larger if the aggregator sends other
        messages meanwhile, or if the move is repeated."""
        mortal, left = self.move(NEVER, victim)
        self.assertIsNone(mortal.child.poll())
        return NEVER - left

    def dies_at(self, step, victim):
        mortal, _ = self.move(step, victim)
        if mortal.child.poll() is None and mortal.pid in self.service.pids():
            return False
        self.assertEqual(mortal.wait(), -signal.SIGKILL)
        del self.aggregators[mortal.pid]
        self.goes_on(step)
        self.add_aggregator()
        return True

    def begin(self, transport):
        self.number, self.aggregators = 0, {}
        self.service = Service('--scale', 'off', '--durability', 'replica',
                               '--aggregator-timeout', SILENT_S, aggregators=0)
        self.addCleanup(self.service.end)
        for _ in range(2):
            self.add_aggregator()
        client = gradpool.connect(self.service.endpoint, transport)
        self.addCleanup(client.close)
        self.training = crash.Training(client)
        self.training.start()
        until(self.is_copied, 'the state has a copy', process=self.service.serve)
        lane = self.service.job('job')['lanes'][0]
        self.assertEqual(self.service.ask('move', 'job', str(lane)).returncode, 0)

    def die_at_steps(self, transport):
        self.begin(transport)
        draw, deaths, steps = random.Random(crash.SEED), [0, 0], [0, 0]
        for victim in 0, 1:
            steps[victim] = self.count_steps(victim)
            while deaths[victim] < DEATHS and steps[victim] > 0:
                step = draw.randint(1, steps[victim])
                if self.dies_at(step, victim):
                    deaths[victim] += 1
                else:
                    steps[victim] = step - 1    # the move had fewer steps
        values, alone = self.training.finish()
        for value in values:
            self.assertEqual(value.tobytes(), alone.tobytes())
        print(f'# {transport}: {deaths[0]} deaths of who had the task, at some of {steps[0]} '
              f'steps, {deaths[1]} of who had its copy, at some of {steps[1]}; '
              f'{len(self.training.gradients)} rounds (seed {crash.SEED})')
        self.assertEqual(deaths, [DEATHS, DEATHS])

    def test_no_death_in_a_move_loses_the_state_shm(self):
        self.die_at_steps('shm')

    def test_no_death_in_a_move_loses_the_state_tcp(self):
        self.die_at_steps('tcp')


if __name__ == '__main__':
    tap.main()
