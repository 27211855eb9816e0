"""One tenant takes all of the coordinator that it can get: others join, operators look and revoke,
and who has cost how much is shown."""
import json
import re
import unittest
import urllib.request

import harness
import tap
from harness import BUILD, Process, Service, result, until

HOSTILE = BUILD / 'test' / 'e2e' / 'hostile'
HALVES = 40         # messages of 16 MiB
HALVES_MIB = 32     # that may be under way at a time


class Fairness(unittest.TestCase):
    """One service that lets nobody in over TCP without a key, tenant after tenant."""

    @classmethod
    def setUpClass(cls):
        cls.service = Service('--require-tls', '--http', '127.0.0.1:0', '--tenant-messages-max',
                              f'{HALVES_MIB}M', aggregators=1)
        cls.addClassCleanup(cls.service.end)
        cls.good = cls.service.tenant_key('good')

    def crowd(self, what, count):
        """A new tenant with so many connections, all of them at it."""
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
        """A job of another tenant trains, an operator looks, and revokes a tenant."""
        self.service.tenant_key(f'short-{what}')
        worker = self.service.worker(f'beside-{what}', 0, 1, '--rounds', '20',
                                     environment={**self.good, 'GRADPOOL_TIMEOUT_MS': '10000'})
        self.assertEqual(result(worker)['wrong'], 0)
        self.assertEqual(self.service.ask('status').returncode, 0)
        self.assertEqual(self.service.tenant('revoke', f'short-{what}').returncode, 0)

    def test_plans_of_much_without_end(self):
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

    def test_lists_of_jobs_without_end(self):
        self.crowd('jobs', 200)
        self.check_others('jobs')

    def test_joins_without_end(self):
        self.crowd('joins', 20)
        self.check_others('joins')

    def test_handshakes_of_strangers_without_end(self):
        self.crowd('strangers', 60)
        self.check_others('strangers')

    def test_messages_that_never_end_take_bounded_memory(self):
        self.crowd('halves', HALVES)
        self.check_others('halves')
        with open(f'/proc/{self.service.serve.pid}/status', encoding='utf-8') as status:
            peak_kib = int(re.search(r'VmHWM:\s+(\d+)', status.read())[1])
        self.assertLess(peak_kib, (HALVES * 16 // 2) << 10)


if __name__ == '__main__':
    tap.main()
