"""Kills, stops and cuts at random while jobs train, workers of two come and go, and an operator
drains and takes snapshots: `gradpool-bench faults`, which checks every element of every round.
GRADPOOL_TEST_LONG makes of one seed ten, each for five minutes."""
import json
import os
import subprocess
import unittest

import tap
from harness import BENCH

SEED = int(os.environ.get('GRADPOOL_TEST_SEED', '4'))
SEEDS, SECONDS = (10, 300) if os.environ.get('GRADPOOL_TEST_LONG') else (1, 40)

WAIT_S = 8  # the deadline of each wait there: none comes to it, whatever was done


class Strikes(unittest.TestCase):
    def strike(self, seed):
        answer = subprocess.run([BENCH, 'faults', '--json', '--seconds', str(SECONDS), '--seed',
                                 str(seed)], capture_output=True, text=True, check=False,
                                timeout=SECONDS + 120)
        print(f'# {answer.stdout.strip()}', flush=True)
        self.assertEqual(answer.returncode, 0, answer.stdout + answer.stderr)
        told = json.loads(answer.stdout.splitlines()[-1])
        self.assertEqual(told['kills'], told['kills_aggregator'] + told['kills_worker'] +
                         told['kills_coordinator'])
        for name in ('kills_aggregator', 'kills_worker', 'kills_coordinator', 'stops', 'cuts',
                     'rounds', 'rounds_elastic', 'snapshots', 'drains'):
            self.assertGreater(told[name], 0, name)
        self.assertGreater(told['elements_checked'], told['rounds'])
        self.assertLess(told['longest_wait_s'], WAIT_S)
        self.assertEqual((told['wrong'], told['hangs'], told['unnamed_errors']), (0, 0, 0))

    def test_what_is_killed_stopped_or_cut_hurts_no_element(self):
        for seed in range(SEED, SEED + SEEDS):
            with self.subTest(seed=seed):
                self.strike(seed)


if __name__ == '__main__':
    tap.main()
