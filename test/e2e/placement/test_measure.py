"""Tests that jobs are measured while they train, and placed by these measurements at their next
start."""
import json
import time
import unittest

import tap
from harness import Service, end_training, until

FOREVER = 1000000
ROUNDS = 20     # rounds of which the mean period is compared


class Measuring(unittest.TestCase):
    """Runs two jobs of one worker each. Until they are measured, each has its own lane."""

    def setUp(self):
        self.service = Service('--lanes-per-core', 2, aggregators=1)
        self.addCleanup(self.service.end)

    def start(self, job, compute_ms, elements, name):
        return self.service.worker(job, 0, 1, '--compute-ms', compute_ms, '--elements', elements,
                                   '--rounds', FOREVER, '--verbose', name=name)

    def await_measured(self, name, worker):
        """Waits until the period that the service measures is near the period of the worker's log
        in the same seconds. On a busy host both periods are longer than the time of the
        computation."""
        seen, looks = {}, []

        def is_right():
            looks.append((time.monotonic(), worker.text().count('round ')))
            former = [look for look in looks if look[1] <= looks[-1][1] - ROUNDS]
            seen.update(self.service.job(name) or {})
            if not former:
                return False
            own_s = (looks[-1][0] - former[-1][0]) / (looks[-1][1] - former[-1][1])
            seen.update(own_ns=1e9 * own_s)
            return abs(seen.get('period_ns', 0) / seen['own_ns'] - 1) < 0.2
        until(is_right, lambda: f'{name} is measured: {seen}', 60, self.service.serve)
        return seen

    def await_lane_time(self, name):
        """Waits until the lane time of the job's only tensor is near the mean of the latest rounds,
        and returns it. While a lane waits for its core, the mean of the latest rounds grows. The
        median does not grow, so the two values differ for a time."""
        seen = {'use': self.service.job(name)['use']}

        def is_right():
            job = self.service.job(name)
            rounds = job['use']['rounds'] - seen['use']['rounds']
            if rounds < 10:
                return False
            mean_ns = (job['use']['busy_ns'] - seen['use']['busy_ns']) / rounds
            seen.update(use=job['use'], lane_ns=job['lane_ns'], mean_ns=mean_ns)
            return mean_ns / 2.5 < job['lane_ns'] < mean_ns * 1.5
        until(is_right, lambda: f'the lane time of {name} is that of its rounds: {seen}', 60,
              self.service.serve)
        return seen['lane_ns']

    def test_measurements_agree_with_the_workers(self):
        jobs = {'small': (60, 1 << 18), 'large': (120, 1 << 20)}
        workers = {name: self.start(name, *job, name) for name, job in jobs.items()}
        until(lambda: all((self.service.job(name) or {}).get('tasks') for name in jobs),
              'both are placed', process=self.service.serve)
        self.assertNotEqual(*(tuple(self.service.job(name)['lanes']) for name in jobs))
        for name, worker in workers.items():
            seen = self.await_measured(name, worker)
            self.assertGreaterEqual(seen['period_ns'], 1e6 * jobs[name][0])
        seen = []

        def is_in_proportion():     # the larger tensor has 4 times the bytes
            seen[:] = [self.await_lane_time(name) for name in jobs]
            return 1.5 < seen[1] / seen[0] < 12
        until(is_in_proportion, lambda: f'lane times of small and large: {seen}',
              process=self.service.serve)
        end_training(*workers.values())
        until(lambda: not self.service.status()['jobs'], 'both are gone',
              process=self.service.serve)
        self.come_again(jobs)

    def come_again(self, jobs):
        """Starts the measured jobs again. Both jobs share a lane, because each needs a small part
        of a lane."""
        for name, job in jobs.items():
            self.start(name, *job, f'{name}-again')
            until(lambda name=name: (self.service.job(name) or {}).get('tasks'),
                  f'{name} is placed', process=self.service.serve)
        again = {name: self.service.job(name) for name in jobs}
        for job in again.values():
            self.assertGreater(job['alone_period_ns'], 0)
        self.assertEqual(*(job['lanes'] for job in again.values()))


class Limits(unittest.TestCase):
    """Runs a service with one lane, whose loss limit leaves no room for a second job."""

    def setUp(self):
        self.service = Service('--cores', 0,
                               '--loss-limit', '1%', aggregators=1)
        self.addCleanup(self.service.end)

    def start(self, job, rounds, name):
        return self.service.worker(job, 0, 1, '--compute-ms', 10, '--elements', 1 << 22,
                                   '--rounds', rounds, '--no-check', name=name)

    def learn(self, job):
        """Runs the job alone until it is measured. Then kills it."""
        worker = self.start(job, FOREVER, f'{job}-first')
        until(lambda: (self.service.job(job) or {}).get('period_ns'), f'{job} is measured', 60,
              self.service.serve)
        worker.kill()
        until(lambda: not self.service.job(job), f'{job} is gone', process=self.service.serve)

    def explain(self, job):
        answer = self.service.ask('explain', job, '--json')
        self.assertEqual(answer.returncode, 0, answer.stderr)
        return json.loads(answer.stdout)['jobs'][0]

    def test_a_job_that_would_exceed_other_limits_is_refused_with_the_reason(self):
        for job in 'first', 'second':
            self.learn(job)
        self.start('first', FOREVER, 'first-again')
        until(lambda: (self.service.job('first') or {}).get('tasks'), 'it is placed',
              process=self.service.serve)
        explained = self.explain('first')
        self.assertEqual(explained['loss_limit_ppm'], 10000)
        self.assertEqual([lane['why'] for lane in explained['lanes']],
                         ['every job stays within its loss limit there'])
        self.assertEqual(len(explained['tasks']), explained['tasks_count'])
        second = self.start('second', 10, 'second-again')
        self.assertNotEqual(second.wait(), 0)
        self.assertIn('job second cannot be placed', second.text())
        self.assertIn('loss limit', second.text())
        self.start('new', FOREVER, 'new')  # a new job is measured on some lane
        until(lambda: (self.service.job('new') or {}).get('tasks'), 'it is placed',
              process=self.service.serve)
        self.assertIn('no lane was free', self.explain('new')['lanes'][0]['why'])
        self.assertIn('no lane was free', self.service.ask('explain', 'new').stdout)

    def test_a_tenant_s_limit_is_shown_and_no_other(self):
        self.service.tenant_key('acme', '--loss-limit', '2.5%')
        self.service.tenant_key('other')
        tenants = json.loads(self.service.tenant('list', '--json').stdout)['tenants']
        self.assertEqual({t['tenant']: t.get('loss_limit_ppm', 0) for t in tenants},
                         {'acme': 25000, 'other': 0})
        answer = self.service.tenant('add', 'wrong', '--loss-limit', '100%')
        self.assertEqual(answer.returncode, 2)
        self.assertIn("'100%': expected percent, such as 5% or 2.5", answer.stderr)


if __name__ == '__main__':
    tap.main()
