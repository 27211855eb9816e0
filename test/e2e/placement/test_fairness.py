"""Tests a tenant that uses as much of the coordinator as the limits allow. Meanwhile jobs of other
tenants join, operators query and revoke, and the service shows the cost of each tenant. Also
checks that `gradpool-bench fences` prints all figures, with three loads or, with
GRADPOOL_TEST_LONG, with all loads. Measured figures are never tested."""
import json
import os
import re
import unittest
import urllib.request

import harness
import tap
from harness import BUILD, Process, Service, result, until
from test_bench import Spent, bench

HOSTILE = BUILD / 'test' / 'e2e' / 'hostile'
HALVES = 40         # number of unfinished messages of 16 MiB each
HALVES_MIB = 32     # limit in MiB on the part of these messages that is in transfer at a time


class Fairness(unittest.TestCase):
    """Starts a service that requires a key on every TCP connection. Each case has its own
    tenant."""

    @classmethod
    def setUpClass(cls):
        cls.service = Service('--require-tls', '--http', '127.0.0.1:0', '--tenant-messages-max',
                              f'{HALVES_MIB}M', aggregators=1)
        cls.addClassCleanup(cls.service.end)
        cls.good = cls.service.tenant_key('good')

    def crowd(self, what, count):
        """Adds a tenant and opens `count` connections of this tenant, all with the same attack."""
        key = self.service.tenant_key(what)
        crowd = Process([HOSTILE, what, count], self.service.folder, f'crowd-{what}',
                        {**key, 'GRADPOOL_ENDPOINT': self.service.endpoint})
        self.addCleanup(crowd.kill)
        crowd.wait_for('ready')
        return crowd

    def tenant(self, name):
        listed = json.loads(self.service.tenant('list', '--json').stdout)['tenants']
        return next(t for t in listed if t['tenant'] == name)

    def check_others(self, what):
        """Trains a job of another tenant, queries the status, and revokes a tenant."""
        self.service.tenant_key(f'short-{what}')
        worker = self.service.worker(f'beside-{what}', 0, 1, '--rounds', '20',
                                     environment={**self.good, 'GRADPOOL_TIMEOUT_MS': '60000'})
        self.assertEqual(result(worker)['wrong'], 0)
        self.assertEqual(self.service.ask('status').returncode, 0)
        self.assertEqual(self.service.tenant('revoke', f'short-{what}').returncode, 0)

    def test_endless_requests_for_plans_stop_no_other_tenant(self):
        self.crowd('plans', 60)
        until(lambda: self.tenant('plans')['coordinator_cpu_ns'] > 5e8, 'the crowd is over its '
              'budget', process=self.service.serve)
        self.check_others('plans')
        self.assertGreater(self.tenant('plans')['coordinator_cpu_ns'],
                           self.tenant('good')['coordinator_cpu_ns'])
        address = re.search(r'http://[0-9.:]+', self.service.serve.text())[0]
        with urllib.request.urlopen(f'{address}/metrics', timeout=harness.WAIT_S) as page:
            self.assertIn('gradpool_tenant_coordinator_cpu_seconds_total{tenant="plans"} ',
                          page.read().decode())

    def test_endless_requests_for_lists_of_jobs_stop_no_other_tenant(self):
        self.crowd('jobs', 200)
        self.check_others('jobs')

    def test_endless_joins_stop_no_other_tenant(self):
        self.crowd('joins', 20)
        self.check_others('joins')

    def test_endless_handshakes_of_strangers_stop_no_tenant(self):
        self.crowd('strangers', 60)
        self.check_others('strangers')

    def test_messages_that_never_end_take_bounded_memory(self):
        self.crowd('halves', HALVES)
        self.check_others('halves')
        with open(f'/proc/{self.service.serve.pid}/status', encoding='utf-8') as status:
            peak_kib = int(re.search(r'VmHWM:\s+(\d+)', status.read())[1])
        self.assertLess(peak_kib, (HALVES * 16 // 2) << 10)


class Fences(unittest.TestCase):
    LOADS = (('plans', 'lists', 'halves', 'greetings', 'storms', 'untouched', 'lends', 'punches',
              'wide', 'strangers', 'junk') if os.environ.get('GRADPOOL_TEST_LONG') else
             ('plans', 'lends', 'wide'))
    PARTS = ('p50', 'p99', 'p999', 'worst')
    BARS = {'p99_ratio': 3, 'p999_ratio': 10, 'wrong': 0, 'longest_s': 1, 'failed': 0}
    VISITS = ('join.tcp', 'join.unix', 'status.tcp', 'status.unix', 'add.unix', 'revoke.unix')

    def measure(self):
        """Runs the bench and checks each line. Returns {name: value}."""
        how = () if os.environ.get('GRADPOOL_TEST_LONG') else ('--quick',)
        answer = bench('fences', '--json', *how)
        print(re.sub('(?m)^', '# ', answer.stdout.strip()), flush=True)
        self.assertEqual(answer.returncode, 0, answer.stdout + answer.stderr)
        values, held = {}, {}
        for line in map(json.loads, answer.stdout.splitlines()):
            self.assertEqual(list(line), ['bench', 'name', 'value', 'bar', 'holds'])
            what, _, figure = line['name'].rpartition('.')
            bar = None if what.startswith('alone') else self.BARS.get(figure)
            self.assertEqual(line['bar'], bar, line)
            self.assertEqual(line['holds'], None if bar is None else line['value'] <= bar, line)
            self.assertNotIn(line['name'], values)
            values[line['name']] = line['value']
            if bar is not None:
                held[line['name']] = line['holds']
        missed = ', '.join(name for name, holds in held.items() if not holds)
        print(f'# {sum(held.values())} of {len(held)} bars hold; missed: {missed or "none"}')
        return values

    def names(self):
        yield from (f'alone.{visit}.longest_s' for visit in self.VISITS)
        for load in self.LOADS:
            for transport in 'shm', 'tcp':
                for part in self.PARTS:
                    yield from (f'{load}.{transport}.{part}_{what}'
                                for what in ('control_us', 'us', 'ratio'))
                yield from (f'{load}.{transport}.{what}' for what in ('load_done', 'wrong'))
            yield from (f'{load}.{visit}.longest_s' for visit in self.VISITS)
            yield f'{load}.visits.failed'

    def test_each_load_has_all_figures_and_no_result_is_wrong(self):
        spent = Spent()
        values = self.measure()
        self.assertEqual(sorted(values), sorted(self.names()))
        wall_us = 1e6 * spent.wall_s()
        for name, value in values.items():
            if name.endswith(('.wrong', '.failed')):
                self.assertEqual(value, 0, name)
            elif not name.endswith('ratio'):
                self.assertGreater(value, 0, name)
            if name.endswith('_us'):
                self.assertLess(value, wall_us, name)
            if name.endswith('longest_s'):
                self.assertLess(value, wall_us / 1e6, name)
        for load in self.LOADS:
            for transport in 'shm', 'tcp':
                for beside in '_control_us', '_us':
                    figures = [values[f'{load}.{transport}.{part}{beside}'] for part in self.PARTS]
                    self.assertEqual(figures, sorted(figures))


if __name__ == '__main__':
    tap.main()
