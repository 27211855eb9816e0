"""Jobs are measured while they train, and placed by that when they come again."""
import json
import unittest

import tap
from harness import Service, result, until

SECONDS = 12


class Measuring(unittest.TestCase):
    """Two jobs of one worker each; where nothing is known of them, each has a lane of its own."""

    def setUp(self):
        self.service = Service('--lanes-per-core', 2, aggregators=1)
        self.addCleanup(self.service.end)

    def start(self, job, compute_ms, elements, name):
        return self.service.worker(job, 0, 1, '--compute-ms', compute_ms, '--elements', elements,
                                   '--rounds', SECONDS * 1000 // compute_ms, name=name)

    def measured(self, name):
        job = self.service.job(name)
        return job if job and job.get('period_ns') else None

    def check(self, job, ended, compute_ms):
        """Against what the worker set, and what the lane has counted in all."""
        period_ns = compute_ms * 1e6 + ended["round_us_p50"] * 1e3
        self.assertAlmostEqual(job['period_ns'] / period_ns, 1, delta=0.2, msg=f"{job} {ended}")
        mean_ns = job['use']['busy_ns'] / job['use']['rounds']  # of its one tensor
        # A mean grows when a lane is put off its core, and a median does not.
        self.assertGreater(job["lane_ns"], mean_ns / 10, job)
        self.assertLess(job['lane_ns'], mean_ns * 2, job)

    def test_what_is_measured_is_what_the_workers_do(self):
        jobs = {'small': (60, 1 << 18), 'large': (120, 1 << 20)}
        workers = {name: self.start(name, *job, name) for name, job in jobs.items()}
        for name in jobs:
            until(lambda name=name: self.measured(name), f'{name} is measured', 60,
                  self.service.serve)
        measured = {name: self.measured(name) for name in jobs}
        results = {name: result(worker) for name, worker in workers.items()}
        for name, (compute_ms, _) in jobs.items():
            self.check(measured[name], results[name], compute_ms)
        self.assertNotEqual(*(tuple(job['lanes']) for job in measured.values()))
        self.come_again(jobs)

    def come_again(self, jobs):
        """Known at once, they share a lane: together they take a small part of it."""
        for name, job in jobs.items():
            self.start(name, *job, f'{name}-again')
            until(lambda name=name: (self.service.job(name) or {}).get('tasks'),
                  f'{name} is placed', process=self.service.serve)
        again = {name: self.service.job(name) for name in jobs}
        for job in again.values():
            self.assertGreater(job['alone_period_ns'], 0)
        self.assertEqual(*(job['lanes'] for job in again.values()))


class Limits(unittest.TestCase):
    """One lane, and a limit that leaves no room beside another job."""

    def setUp(self):
        self.service = Service('--cores', 0,
                               '--loss-limit', '1%', aggregators=1)
        self.addCleanup(self.service.end)

    def start(self, job, rounds, name):
        return self.service.worker(job, 0, 1, '--compute-ms', 10, '--elements', 1 << 22,
                                   '--rounds', rounds, '--no-check', name=name)

    def learn(self, job):
        """It runs alone until it is known, and is then ended like one that was killed."""
        worker = self.start(job, 1000000, f'{job}-first')
        until(lambda: (self.service.job(job) or {}).get('period_ns'), f'{job} is measured', 60,
              self.service.serve)
        worker.kill()
        until(lambda: not self.service.job(job), f'{job} is gone', process=self.service.serve)

    def explain(self, job):
        answer = self.service.ask('explain', job, '--json')
        self.assertEqual(answer.returncode, 0, answer.stderr)
        return json.loads(answer.stdout)['jobs'][0]

    def test_who_would_cost_others_too_much_is_refused_with_the_whole_reason(self):
        for job in 'first', 'second':
            self.learn(job)
        self.start('first', 1000000, 'first-again')
        until(lambda: (self.service.job('first') or {}).get('tasks'), 'it is placed',
              process=self.service.serve)
        explained = self.explain('first')
        self.assertEqual(explained['loss_limit_ppm'], 10000)
        self.assertEqual([lane['why'] for lane in explained['lanes']],
                         ['everybody stays within his loss limit there'])
        self.assertEqual(len(explained['tasks']), explained['tasks_count'])
        second = self.start('second', 10, 'second-again')
        self.assertNotEqual(second.wait(), 0)
        self.assertIn('job second cannot be placed', second.text())
        self.assertIn('loss limit', second.text())
        self.start('new', 1000000, 'new')  # is measured somewhere all the same
        until(lambda: (self.service.job('new') or {}).get('tasks'), 'it is placed',
              process=self.service.serve)
        self.assertIn('no lane was free', self.explain('new')['lanes'][0]['why'])
        self.assertIn('no lane was free', self.service.ask('explain', 'new').stdout)

    def test_a_tenant_s_limit_is_shown_and_that_of_nobody_is_not(self):
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
