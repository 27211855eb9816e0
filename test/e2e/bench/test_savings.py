"""Tests `gradpool-bench savings` with small jobs: the figures of its last line must follow from the
lines before. Measured figures are never tested."""
import json
import math
import pathlib
import statistics
import tempfile
import unittest

import browser
import harness
import tap
from harness import BENCH

LAST = ['cores_saved_fraction', 'loss_mean', 'loss_p95', 'loss_worst', 'loss_worst_alone',
        'offered_cores', 'lane_busy_max', 'alternations', 'wrong', 'checked_rounds',
        'predicted_near_fraction']
# On a busy host a worker needs seconds to start, and both jobs run together only for a part of a
# turn.
TINY = ('savings', '--quick', '--jobs', 2, '--mix', 'resnet18_cifar,lstm_lm', '--turn-s', 5,
        '--load', 10)
CLOSE = 2e-5  # printed values are rounded


def bench(*options):
    return harness.run([str(BENCH), *map(str, options)], capture_output=True, text=True,
                       timeout=200, check=False)


class Savings(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.page = cls.folder / 'run.html'
        cls.answer = bench(*TINY, '--json', '--report', cls.page)
        cls.lines = [json.loads(line) for line in cls.answer.stdout.splitlines()]
        cls.last = cls.lines[-1] if cls.lines else {}

    def having(self, member, value=None):
        return [line for line in self.lines
                if member in line and value in (None, line[member])]

    def near(self, name, expected):
        self.assertAlmostEqual(self.last[name], expected, delta=CLOSE, msg=name)

    def test_the_bench_succeeds_and_no_checked_element_is_wrong(self):
        self.assertEqual(self.answer.returncode, 0, self.answer.stderr)
        self.assertIn(list(self.last), (LAST, LAST[:-1]))
        self.assertEqual((self.last['wrong'], self.last['alternations']), (0, 2))
        self.assertGreater(self.last['checked_rounds'], 0)

    def test_the_page_shows_the_figures_of_the_lines(self):
        data = browser.check_run(self, self.page)
        for name in LAST:
            if name in data['figures']:
                self.near(name, data['figures'][name])
        for job, line in zip(data['jobs'], self.having('loss_alone'), strict=True):
            self.assertEqual(job['job'], line['job'])
            self.assertAlmostEqual(job['shared_s'], line['shared']['median_ms'] / 1e3, delta=1e-6)
            self.assertAlmostEqual(job['loss'], line['loss'], delta=CLOSE)
        self.assertEqual(max(one['dedicated'] for one in data['history']), 4)
        browser.check_labels(self, self.page.read_text(), self.folder)

    def test_the_settings_take_turns_and_each_job_runs_under_every_setting(self):
        turns = [(line['alternation'], line['turn']) for line in self.having('turn')]
        self.assertEqual([t for t in turns if t[1] != 'alone'],
                         [(1, 'dedicated'), (1, 'shared'), (2, 'shared'), (2, 'dedicated')])
        self.assertEqual(turns.count((1, 'alone')), 2)
        for line in self.having('turn'):
            for job in line['jobs']:
                self.assertGreater(job['period_ms'], 0, line)

    def test_each_worker_has_a_dedicated_lane_while_all_jobs_run(self):
        for line in self.having('turn', 'dedicated'):
            self.assertEqual(max(lanes for _, lanes in line['allocated']), 4, line)
            self.assertEqual(line['allocated'][-1][1], 0, line)

    def test_cores_allocated_over_time_add_up(self):
        for line in self.having('turn'):
            steps = line['allocated']
            held = sum(lanes * (after[0] - at)
                       for (at, lanes), after in zip(steps, steps[1:], strict=False))
            self.assertAlmostEqual(held, line['allocated_core_s'], delta=0.1, msg=line)

    def test_the_saving_follows_from_the_turns(self):
        held = {name: sum(line['allocated_core_s'] for line in self.having('turn', name))
                for name in ('dedicated', 'shared')}
        for line, cores in zip(self.having('cores_a_server'), (4, 2, 1), strict=True):
            self.assertEqual(line['cores_a_server'], cores)
            self.assertAlmostEqual(line['dedicated_core_s'], cores * held['dedicated'], delta=1e-2)
            self.assertAlmostEqual(line['saved_fraction'],
                                   1 - held['shared'] / held['dedicated'] / cores, delta=1e-4)
        self.near('cores_saved_fraction', self.having('cores_a_server', 1)[0]['saved_fraction'])

    def test_periods_of_jobs_follow_from_the_turns(self):
        for job in self.having('loss_alone'):
            for setting in ('alone', 'dedicated', 'shared'):
                periods = [seen['period_ms'] for line in self.having('turn', setting)
                           for seen in line['jobs'] if seen['job'] == job['job']]
                said = job[setting]
                self.assertAlmostEqual(said['median_ms'], statistics.median(periods), delta=1e-3)
                self.assertEqual((said['low_ms'], said['high_ms']), (min(periods), max(periods)))
                self.assertEqual(said['confidence'], 0.5 if len(periods) == 2 else 0)

    def test_losses_follow_from_the_periods(self):
        jobs = self.having('loss_alone')
        self.assertEqual(len(jobs), 2)
        for job in jobs:
            shared = job['shared']['median_ms']
            for name, setting in (('loss', 'dedicated'), ('loss_alone', 'alone')):
                ratio = job[setting]['median_ms'] / shared
                self.assertAlmostEqual(job[name], 1 - ratio, delta=CLOSE * max(1, ratio))
        losses = sorted(job['loss'] for job in jobs)
        self.near('loss_mean', statistics.mean(losses))
        self.near('loss_p95', losses[math.ceil(0.95 * len(losses)) - 1])
        self.near('loss_worst', losses[-1])
        self.near('loss_worst_alone', max(job['loss_alone'] for job in jobs))
        told = [job for job in jobs if 'loss_predicted' in job]
        near = [job for job in told if abs(job['loss'] - job['loss_predicted']) <= 0.02]
        self.assertEqual('predicted_near_fraction' in self.last, bool(told))
        if told:
            self.near('predicted_near_fraction', len(near) / len(told))

    def test_the_load_follows_from_the_turns(self):
        for name, setting, member in (('offered_cores', 'dedicated', 'offered_cores'),
                                      ('lane_busy_max', 'shared', 'busiest_lane')):
            seen = [line[member] for line in self.having('turn', setting)]
            self.assertAlmostEqual(self.last[name], statistics.median(seen), delta=1e-4)


class Usage(unittest.TestCase):
    def test_without_json_the_output_is_a_table_with_the_scaled_figures(self):
        answer = bench('savings', '--quick', '--jobs', 1, '--mix', 'lstm_lm', '--alternations', 1,
                       '--turn-s', 1, '--load', 5)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertIn('Scale: tensors x', answer.stdout)
        self.assertIn('time-share', answer.stdout)
        self.assertIn('1 cores a server: dedicated hold', answer.stdout)
        self.assertNotIn('{', answer.stdout)

    def test_a_missing_model_is_named_and_no_service_starts(self):
        answer = bench('savings', '--mix', 'resnet50,gpt9')
        self.assertEqual(answer.returncode, 1)
        self.assertEqual(answer.stdout, '')
        self.assertIn("'gpt9'", answer.stderr)

    def test_an_unwritable_output_is_reported_before_the_start(self):
        answer = bench('savings', '--report', '/nowhere/run.html')
        self.assertEqual((answer.returncode, answer.stdout), (1, ''))
        self.assertIn('/nowhere/run.html cannot be written', answer.stderr)

    def test_a_mistake_on_the_command_line_is_exit_code_2(self):
        for options in (('--jobs', 0), ('--transport', 'pigeon'), ('--load', 'x'),
                        ('--policy', 'bogus')):
            self.assertEqual(bench('savings', *options).returncode, 2, options)


if __name__ == '__main__':
    tap.main()
