"""Tests that `gradpool-bench migrate` prints every row with right results over tcp. With
GRADPOOL_TEST_LONG it also runs over shared memory. Measured figures are never tested."""
import json
import os
import unittest

import tap
from test_bench import bench


STATE_BYTES = 16384
EVENTS = ('drain', 'end-aggregator', 'restart-serve')
TRANSPORTS = ('shm', 'tcp') if os.environ.get('GRADPOOL_TEST_LONG') else ('tcp',)


class Migrate(unittest.TestCase):
    def test_each_kind_of_move_to_another_aggregator_has_a_row_and_the_same_bits(self):
        answer = bench('migrate', '--json', '--state', STATE_BYTES, '--migrations', 1,
                       '--drains', 1, '--ends', 1, '--restarts', 1,
                       *(() if len(TRANSPORTS) > 1 else ('--transport', 'tcp')))
        self.assertEqual(answer.returncode, 0, answer.stdout + answer.stderr)
        lines = [json.loads(line) for line in answer.stdout.splitlines()]
        count = len(EVENTS) * len(TRANSPORTS)
        rows, planned = lines[:-count], lines[-count:]
        self.assertEqual([(row['mode'], row['transport']) for row in planned],
                         [(event, transport) for event in EVENTS for transport in TRANSPORTS])
        for row in planned:
            self.assertEqual((row['jobs'], row['events']), (8, 1))
            self.assertGreaterEqual(row['tasks'], 104)
            self.assertEqual(row['state_bytes'], 8 * 13 * 12 * 65536)
            self.assertEqual((row['failed_rounds'], row['wrong']), (0, 0), row)
            # with a single event, median and worst value are equal
            for which in ('longest', 'control'):
                self.assertEqual(row[f'{which}_fraction_median'], row[f'{which}_fraction_worst'])
                self.assertGreaterEqual(row[f'{which}_ms'], 100)    # each job computes for 100 ms
        self.assertEqual([(r['mode'], r['transport']) for r in rows],
                         [(mode, transport) for transport in TRANSPORTS
                          for mode in ('live', 'stop-the-world', 'restart')])
        for row in rows:
            self.assertEqual((row['state_bytes'], row['migrations']), (STATE_BYTES, 1))
            self.assertEqual((row['failed_rounds'], row['wrong']), (0, 0), row)
            for name in ('iteration_ms', 'hidden_ms', 'visible_pause_fraction',
                         'control_fraction'):
                self.assertIsInstance(row[name], float)
            # all workers stop in one iteration, so the length of this iteration contains all of the
            # lost time
            if row['mode'] != 'live':
                self.assertEqual(row['hidden_ms'], 0, row)
                longest_ms = (row['visible_pause_fraction'] + 1) * row['iteration_ms']
                self.assertLess(row['migration_ms'], longest_ms + 1, row)


if __name__ == '__main__':
    tap.main()
