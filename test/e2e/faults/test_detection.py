"""Measures how long a job waits when its aggregator dies or becomes silent. Prints the times. The
limits for silence leave a margin for a machine that is busy with other tests."""
import os
import signal
import unittest

import ranks  # sets GRADPOOL_LIBRARY, before gradpool is imported
import progress
import tap
import test_fencing as fencing
import test_nodes as nodes
from harness import GRADPOOL, Process, Service, finish_training, until

ELEMENTS = 100000
DEATH_S, SILENCE_S = 1.0, 1.5 + 0.5  # silence: timeout, and time until the unanswered ping
BUSY = 3  # factor for a busy machine


class Death(unittest.TestCase):
    def lose(self, service, transport, pids, times):
        """Measures several losses. Returns the shortest waiting time, because other tests may delay
        some attempts."""
        self.service = service
        self.addCleanup(service.end)
        training = fencing.Training(self, transport, ELEMENTS)
        taken = [self.lose_owner(training, pids)]
        while min(taken) >= DEATH_S and len(taken) < times:
            taken.append(self.lose_owner(training, pids))
        self.assertLess(min(taken), DEATH_S, taken)

    def lose_owner(self, training, pids):
        training.train(5)
        owner = next(a['pid'] for a in self.service.status()['aggregators']
                     if any(lane['tasks'] for lane in a['lanes']))
        self.assertIn(owner, pids())
        watch = progress.Stopwatch()
        os.kill(owner, signal.SIGKILL)
        training.train(1)
        taken = watch.seconds()
        training.train(5)
        print(f'# {self.id().split(".")[-1]}: the next round ended after {taken:.3f} s')
        return taken

    def lose_local(self, transport):
        service = Service()
        self.lose(service, transport, service.pids, 3)

    def lose_one_joined_by_hand(self, transport):
        service, joined = Service(aggregators=0), []
        for name in 'one', 'two', 'three', 'four':
            process = Process([GRADPOOL, 'aggregator', '--join',
                               service.endpoint.removeprefix('gradpool://'), '--cores', '0'],
                              service.folder, name, service.operator())
            self.addCleanup(process.kill)
            process.wait_for('joined as aggregator')
            joined.append(process.pid)
        self.lose(service, transport, lambda: joined, len(joined) - 1)

    def test_a_local_aggregator_is_killed_shm(self):
        self.lose_local('shm')

    def test_a_local_aggregator_is_killed_tcp(self):
        self.lose_local('tcp')

    def test_an_aggregator_joined_by_hand_is_killed_shm(self):
        self.lose_one_joined_by_hand('shm')

    def test_an_aggregator_joined_by_hand_is_killed_tcp(self):
        self.lose_one_joined_by_hand('tcp')


@unittest.skipUnless(os.geteuid() == 0, 'network namespaces need root')
class Silence(unittest.TestCase):
    def setUp(self):
        self.nodes, self.service = nodes.start(self.addCleanup)

    def owner(self):
        """Returns the node of the aggregator that serves the job."""
        return next(a['node'].removeprefix('node-') for a in self.service.status()['aggregators']
                    if any(lane['tasks'] for lane in a['lanes']))

    def test_a_host_that_is_cut_off_is_silent_and_its_tasks_get_other_lanes(self):
        cores = sorted(os.sched_getaffinity(0))
        joined = {node: self.service.add_aggregator(node, cores[0]) for node in 'bc'}
        workers = [self.service.worker_on('a', 'job', rank, 2, '--rounds', 1000000, '--verbose',
                                          '--elements', ELEMENTS, '--compute-ms', 3)
                   for rank in range(2)]
        workers[0].wait_for('round 50\n')
        owner = self.owner()
        self.nodes.cut(owner)
        watch, seen = progress.Stopwatch(), len(workers[0].text())
        until(lambda: len(workers[0].text()) > seen + 100, 'training goes on', process=workers[0])
        taken = watch.seconds()
        self.nodes.restore(owner)
        print(f'# a silent host: the job stood still for {taken:.3f} s')
        self.assertLess(taken, BUSY * SILENCE_S)
        finish_training(*workers)
        joined[owner].wait_for('counted as lost, so it joins as a new one', 60)
        # The number of the new aggregator is unknown: on a busy host the other aggregator may also
        # have been lost and have joined again.
        until(lambda: joined[owner].text().count('joined as aggregator ') > 1, 'it joins again',
              process=joined[owner])


if __name__ == '__main__':
    tap.main()
