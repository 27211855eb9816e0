"""Backup workers against a real service: client/backup_example.c with a slow rank, over each
transport. A round closes at its second gradient, and parameters are equal at every round."""
import collections
import re
import unittest

import harness
import tap

EXAMPLE = harness.BUILD / 'client' / 'gradpool-backup-example'
RANKS, ROUNDS = 3, 40
LINE = re.compile(r'round (\d+) of (\d+): (counted|dropped), (weight \S+ bias \S+)')
service = None


def setUpModule():
    global service
    service = harness.Service('--durability', 'none')


def tearDownModule():
    service.end()


class BackupWorkers(unittest.TestCase):
    def run_ranks(self, job, slow_ms, transport):
        """Returns the output of each rank."""
        children = []
        for rank in range(RANKS):
            environment = {'GRADPOOL_ENDPOINT': service.endpoint, 'GRADPOOL_JOB': job,
                           'GRADPOOL_TRANSPORT': transport, 'GRADPOOL_RANK': str(rank),
                           'GRADPOOL_SIZE': str(RANKS)}
            children.append(harness.Process([EXAMPLE, str(slow_ms)], service.folder,
                                            f'{job}-{rank}', environment))
        for child in children:
            self.assertEqual(child.child.wait(timeout=harness.WAIT_S), 0, child.text())
        return [child.text() for child in children]

    def check(self, outputs):
        """Parameters of a round are equal on every rank that has the round. Returns how often each
        rank was dropped."""
        parameters = collections.defaultdict(set)
        for output in outputs:
            rounds = [LINE.match(line) for line in output.splitlines()[:-1]]
            self.assertTrue(all(rounds), output)
            numbers = [int(found[1]) for found in rounds]
            self.assertEqual(numbers, sorted(set(numbers)), output)
            self.assertGreaterEqual(numbers[-1], ROUNDS)
            for found in rounds:
                parameters[int(found[1])].add(found[4])
        for number, values in parameters.items():
            self.assertEqual(len(values), 1, (number, values))
        return [int(output.rsplit(' ', 1)[1]) for output in outputs]

    def run_over(self, transport):
        dropped = self.check(self.run_ranks(f'slow-{transport}', 40, transport))
        self.assertGreater(dropped[0], 0)
        # as fast as the others: each rank may be the third of a round
        self.check(self.run_ranks(f'even-{transport}', 1, transport))

    def test_parameters_are_equal_at_every_round_over_shared_memory(self):
        self.run_over('shm')

    def test_parameters_are_equal_at_every_round_over_tcp(self):
        self.run_over('tcp')


if __name__ == '__main__':
    tap.main()
