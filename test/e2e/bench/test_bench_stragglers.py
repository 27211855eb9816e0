"""Tests `gradpool-bench stragglers`: if a lane is slow, the service tries other placements, and
every result stays right. The speed-up is never tested."""
import json
import os
import pathlib
import shutil
import tempfile
import unittest

import harness
import tap
from harness import BENCH, BUILD
from test_bench import bench

SLOW = BUILD / 'bench' / 'gradpool-bench-slow'
FALSE_RESULTS = BUILD / 'test' / 'e2e' / 'libfalse_results.so'

TIMES = ('round_before_ms', 'round_onset_ms', 'round_during_ms', 'round_settled_ms',
         'round_after_ms', 'speed_fraction')


class Stragglers(unittest.TestCase):
    def rows(self, policies):
        answer = bench('stragglers', '--json', '--model', 'resnet50', '--injector', 'sleep',
                       '--policy', policies)
        self.assertEqual(answer.returncode, 0, answer.stdout + answer.stderr)
        *rows, last = [json.loads(line) for line in answer.stdout.splitlines()]
        self.assertEqual(last['wrong'], 0)
        self.assertEqual([row['policy'] for row in rows], policies.split(','))
        for row in rows:
            self.assertEqual((row['model'], row['injector']), ('resnet50', 'sleep'))
            self.assertEqual(row['wrong'], 0, row)
            for name in TIMES:
                self.assertGreater(row[name], 0, row)
        return rows, last

    def test_tasks_leave_a_slow_lane_where_the_service_may_explore(self):
        (nothing, explore), bars = self.rows('nothing,explore')
        self.assertEqual([nothing[name] for name in ('tried', 'kept', 'bytes_moved')], [0, 0, 0])
        self.assertGreaterEqual(explore['tried'], 1, explore)
        self.assertGreater(explore['bytes_moved'], 0, explore)
        self.assertLessEqual(explore['kept'], explore['tried'], explore)
        self.assertEqual(bars['speed_fraction'], explore['speed_fraction'])
        self.assertIn('speed_up', explore)

    def test_results_that_are_wrong_after_the_first_round_fail_the_command(self):
        answer = bench('stragglers', '--json', '--model', 'resnet50', '--injector', 'sleep',
                       '--policy', 'nothing', environment={'LD_PRELOAD': str(FALSE_RESULTS)})
        self.assertEqual(answer.returncode, 1, answer.stdout + answer.stderr)
        row, last = [json.loads(line) for line in answer.stdout.splitlines()]
        # each worker has reported one wrong result
        self.assertEqual((row['wrong'], last['wrong']), (8, 8))
    def test_bytes_moved_by_the_disturbance_itself_do_not_count(self):
        answer = bench('stragglers', '--json', '--model', 'resnet50', '--injector', 'skew',
                       '--policy', 'nothing')
        self.assertEqual(answer.returncode, 0, answer.stdout + answer.stderr)
        row = json.loads(answer.stdout.splitlines()[0])
        self.assertEqual((row['injector'], row['bytes_moved']), ('skew', 0))

    def test_without_slow_lanes_an_unsuited_policy_is_refused(self):
        answer = bench('stragglers', '--json', '--model', 'resnet50', '--injector', 'none',
                       '--policy', 'mxnet')
        self.assertEqual((answer.returncode, answer.stdout), (1, ''), answer.stderr)
        self.assertIn('no such policy is run beside such an injector', answer.stderr)

    def test_stop_the_world_fails_if_the_lane_cannot_be_drained(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            shutil.copy(BENCH, folder / 'gradpool-bench')
            program = folder / 'gradpool-bench-slow'
            program.write_text(f'#!/bin/sh\n[ "$1" != drain ] || exit 1\nexec {SLOW} "$@"\n')
            program.chmod(0o755)
            answer = harness.run(
                [folder / 'gradpool-bench', 'stragglers', '--json', '--model', 'resnet50',
                 '--injector', 'sleep', '--policy', 'stop-the-world'],
                capture_output=True, text=True, timeout=300, check=False,
                env={**os.environ, 'LD_LIBRARY_PATH': str(BUILD / 'client')})
        self.assertEqual((answer.returncode, answer.stdout), (1, ''), answer.stderr)
        self.assertIn('gradpool drain lane 2 failed: exit code 1', answer.stderr)


if __name__ == '__main__':
    tap.main()
