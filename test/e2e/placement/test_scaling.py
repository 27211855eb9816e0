"""Tests that the number of lanes follows the load. Lanes open and park, and aggregators start and
stop. Tasks move between the lanes, and their jobs continue with right sums."""
import re
import unittest

import tap
from harness import Service, end_training, until

PATIENCE_S = 90
FOREVER = ('--rounds', 1000000, '--verbose')


class Scaling(unittest.TestCase):
    """Two local aggregators with two lanes each. Hold times are one second, so an aggregator
    without an open lane ends after ten seconds."""

    def setUp(self):
        self.service = Service('--cores', 0, '--lanes-per-core', 2, '--scale-hold', 1,
                               aggregators=2)
        self.addCleanup(self.service.end)

    def start(self, job):
        """Starts a worker that runs until it is killed. It computes most of the time and checks
        each sum."""
        worker = self.service.worker(job, 0, 1, '--compute-ms', 100, '--elements', 1 << 14,
                                     *FOREVER)
        until(lambda: (self.service.job(job) or {}).get('tasks'), f'{job} is placed',
              process=self.service.serve)
        return worker

    def lanes(self, *states):
        return [lane for a in self.service.status()['aggregators'] if a['state'] != 'lost'
                for lane in a['lanes'] if lane['state'] in states]

    def until_open(self, count, what):
        until(lambda: len(self.lanes('open')) == count and not self.lanes('closing'), what,
              PATIENCE_S, self.service.serve)

    def until_up(self, count, what):
        until(lambda: len(self.service.pids()) == count, what, PATIENCE_S, self.service.serve)

    def lanes_of(self, *jobs):
        return {lane for job in jobs for lane in self.service.job(job)['lanes']}

    def check_alone(self, name, *others):
        """Checks that a new job has lanes of its own. On a busy host two exceptions are allowed.
        The service may already have measured the new job, which then shares a lane. Or it measures
        other jobs alone once more, and no lane is free."""
        if self.lanes_of(name) & self.lanes_of(*others):
            is_measured = 'alone_period_ns' in self.service.job(name)
            self.assertTrue(is_measured or 'no lane was free' in
                            self.service.ask('explain', name).stdout, f'{name} shares a lane')

    def test_the_pool_follows_jobs_that_come_share_and_go(self):
        jobs = {}
        for name in 'one', 'two', 'three':
            started = self.start(name)
            self.check_alone(name, *jobs)
            jobs[name] = started
        # on a busy host the service may measure a job alone once more, before the job shares the
        # lane again
        until(lambda: len(self.lanes_of(*jobs)) == len(self.lanes('open')) == 1,
              'all share one lane', PATIENCE_S, self.service.serve)
        self.until_up(1, 'the aggregator without an open lane stops')
        self.assertEqual({self.service.job(name)['state'] for name in jobs}, {'training'})

        starts = self.service.serve.text().count('started a local aggregator')
        jobs['four'] = self.start('four')
        # On a busy host other jobs may be measured alone again. The number of open lanes is
        # therefore not compared.
        self.check_alone('four', 'one', 'two', 'three')
        jobs['five'] = self.start('five')
        self.check_alone('five', 'one', 'two', 'three', 'four')
        self.assertEqual(self.service.serve.text().count('started a local aggregator'), starts + 1)

        end_training(*jobs.values())
        self.until_open(1, 'lanes without a job park')
        self.until_up(1, 'the aggregator stops again')
        stays = [line for line in self.service.serve.text().splitlines()
                 if 'stay on their lanes' in line
                 and not re.search('the job has (failed|ended)', line)]
        self.assertEqual(stays, [])

    def test_a_move_prints_how_long_growth_leaves_the_job_there(self):
        workers = [self.start(name) for name in ('one', 'two')]
        lane, = self.lanes_of('two')
        answer = self.service.ask('move', 'one', str(lane))
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertIn('growth leaves the job there for 600 s (serve --order-hold)', answer.stdout)
        for job in 'one', 'two':
            self.assertRegex(self.service.ask('explain', job).stdout,
                             "an operator's move holds it there for [0-9]+ s more")
        end_training(*workers)

    def test_a_job_alone_on_its_lanes_is_tried_on_fewer(self):
        workers = self.service.workers('wide', 4, '--compute-ms', 50, '--elements', 1 << 20,
                                       *FOREVER)
        until(lambda: len((self.service.job('wide') or {}).get('lanes', ())) == 4,
              'it begins on as many lanes as workers', process=self.service.serve)
        self.until_open(1, 'one lane is enough')
        text = self.service.serve.text()
        self.assertIn('growth: narrow: job wide is tried on fewer lanes: the job is alone on '
                      '4 lanes, and moves to 2', text)
        self.assertRegex(text, 'job wide runs alone on 2 lanes: [0-9] lanes are enough')
        end_training(*workers)
        self.assertNotIn('stay on their lanes', self.service.serve.text())


if __name__ == '__main__':
    tap.main()
