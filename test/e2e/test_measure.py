"""Jobs are measured while they train, and placed by that when they come again."""
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
        return job if job and job['period_ns'] else None

    def check(self, job, ended, compute_ms):
        """Against what the worker set, and what the lane has counted in all."""
        period_ns = compute_ms * 1e6 + ended["round_us_p50"] * 1e3
        self.assertAlmostEqual(job['period_ns'] / period_ns, 1, delta=0.2, msg=f"{job} {ended}")
        mean_ns = job['use']['busy_ns'] / job['use']['rounds'] * job['tasks']
        self.assertGreater(job['lane_ns'], mean_ns / 2, job)
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


if __name__ == '__main__':
    tap.main()
