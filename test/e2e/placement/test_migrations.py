"""Makes many migrations in a row between two processes while two jobs train, over shared memory and
tcp. Checks every element of every round: the sums of one job, the parameters and moments of the
other. The parameters are compared with a training without a service. GRADPOOL_TEST_LONG makes a
thousand migrations."""
import json
import os
import random
import time
import unittest

import ranks  # sets GRADPOOL_LIBRARY, before gradpool is imported
import tap
import test_migration_crash as crash
import gradpool
from harness import Service

SEED = tap.seed(time.time_ns() % 1000000)
MOVES = 500 if os.environ.get('GRADPOOL_TEST_LONG') else 20  # number of moves over each transport
FOREVER = ('--rounds', '1000000', '--compute-ms', 3, '--tensors', 3, '--elements', 100000)


def rounds_of(worker):
    """Checks the elements of each completed round. Returns the number of rounds."""
    lines = [line for line in worker.text().splitlines() if line.startswith('round ')]
    if lines and 'wrong' in lines[-1]:
        raise AssertionError(f'{worker.name}: {lines[-1]}')
    return int(lines[-1].split()[1]) if lines else 0


class Migrations(unittest.TestCase):
    def setUp(self):
        self.service = Service('--scale', 'off', '--lanes-per-core', 1)
        self.addCleanup(self.service.end)
        self.random = random.Random(SEED)

    def move_in_a_row(self, transport):
        workers = self.service.workers('job', 2, '--transport', transport, '--verbose', *FOREVER)
        lanes = [[lane['lane'] for lane in a['lanes']]
                 for a in self.service.status()['aggregators']]
        client = gradpool.connect(self.service.endpoint, transport)
        self.addCleanup(client.close)
        training = crash.Training(client, 'updates')
        training.start()
        for worker in workers:
            worker.wait_for('round 5\n')
        moves, began = 0, time.monotonic()
        while moves < MOVES and not training.failure:
            target = self.random.choice(lanes[moves // 2 % 2])
            answer = self.service.ask('move', ('job', 'updates')[moves % 2], str(target), '--json')
            self.assertEqual(answer.returncode, 0, answer.stderr)
            if moves >= 2:      # in the first two moves, some tasks may already be on the target
                self.assertGreaterEqual(json.loads(answer.stdout)['tasks'], 1)
            moves += 1
        values, alone = training.finish()
        for value in values:
            self.assertEqual(value.tobytes(), alone.tobytes())
        self.check(workers)
        print(f'# {transport}: {moves} migrations between two processes in '
              f'{time.monotonic() - began:.1f} s')

    def check(self, workers):
        """Checks that the job continues on the last owner, without a lost or wrong round."""
        for worker in workers:
            worker.wait_for(f'round {rounds_of(worker) + 5}\n')
            self.assertIsNone(worker.child.poll(), worker.tail())
        self.assertEqual(self.service.job('job')['state'], 'training')
        for worker in workers:
            worker.kill()

    def test_migrations_in_a_row_lose_nothing_shm(self):
        self.move_in_a_row('shm')

    def test_migrations_in_a_row_lose_nothing_tcp(self):
        self.move_in_a_row('tcp')


if __name__ == '__main__':
    tap.main()
