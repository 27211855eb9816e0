"""Resets connections between living workers and lanes, like a firewall. Jobs must continue over new
connections with the same bits. Dead workers must be detected as fast as without resets."""
import os
import pathlib
import re
import signal
import socket
import time
import unittest

import numpy

import progress
import ranks  # sets GRADPOOL_LIBRARY, before gradpool is imported
import gradpool
from harness import (BENCH, LISTENING, Process, Service, connections, container, finish_training,
                     forget_connections, free_ports, reset_connections, until)

WAIT_MS = 60000
WORKERS = 2
LARGE = 16 << 20    # 64 MiB
SHORT = 3000
ENDS = 'local', 'remote'
LANES_MAX = 2 * os.cpu_count()


def received_bytes():
    """Returns the number of bytes received by the loopback interface so far."""
    for line in pathlib.Path('/proc/net/dev').read_text().splitlines():
        name, _, fields = line.partition(':')
        if name.strip() == 'lo':
            return int(fields.split()[0])
    raise AssertionError('no loopback interface')


class Resets(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # one case stops the aggregator, on a busy host for an unknown time
        cls.service = Service('--scale', 'off', '--lanes-per-core', 2, '--aggregator-timeout', 0,
                              '--data-port', free_ports(LANES_MAX), aggregators=1)
        cls.addClassCleanup(cls.service.end)
        aggregator = cls.service.status()['aggregators'][0]
        cls.aggregator = aggregator['pid']
        cls.lanes = [lane['lane'] for lane in aggregator['lanes']]
        cls.ports = [int(lane['ofi'].rsplit(':', 1)[1]) for lane in aggregator['lanes']]

    def reset(self, end):
        """Resets the connections of all jobs on one side. The peers then receive a reset."""
        # on a busy host some workers may still be connecting again after the last reset
        until(lambda: sum(reset_connections(port, end) for port in self.ports) > 0,
              'a connection to reset', process=self.service.serve)

    def join(self, name, **how):
        client = gradpool.connect(self.service.endpoint, 'tcp')
        self.addCleanup(client.close)
        jobs = [client.join(name, rank, WORKERS, **how) for rank in range(WORKERS)]
        for job in jobs:
            self.addCleanup(job.leave)
        return jobs

    def training(self, name, workers, *options):
        started = self.service.workers(name, workers, '--transport', 'tcp', '--rounds', 1000000,
                                       '--timeout-ms', WAIT_MS, '--verbose', *options,
                                       environment={'GRADPOOL_LOG_LEVEL': 'info'})
        for worker in started:
            worker.wait_for('round ')
        return started

    def go_on(self, workers):
        """Checks that each worker starts some more rounds."""
        seen = [worker.text().count('round ') for worker in workers]
        for worker, before in zip(workers, seen):
            until(lambda worker=worker, before=before: worker.child.poll() is not None or
                  worker.text().count('round ') > before + 3, f'{worker.name} goes on',
                  process=worker)

    def test_rounds_go_on_to_the_same_sums_whichever_end_is_reset(self):
        workers = self.training('rounds', 3, '--tensors', 4, '--elements', 100000, '--compute-ms',
                                5)
        for end in ENDS * 3:
            self.reset(end)
            self.go_on(workers)
        for worker in workers:
            self.assertIn('this worker connects again', worker.text())
            self.assertIn('the connection to lane ', worker.text())
            self.assertIn('); this worker connects again', worker.text())
        finish_training(*workers)
        self.assertIn('s to connect again', self.service.serve.text())

    def test_a_job_that_moves_between_lanes_meanwhile_goes_on(self):
        workers = self.training('moves', 2, '--tensors', 8, '--elements', 100000)
        for i, end in enumerate(ENDS * 3):
            answer = self.service.ask('move', 'moves', str(self.lanes[i % 2]))
            self.reset(end)
            self.assertEqual(answer.returncode, 0, answer.stderr)
        self.go_on(workers)
        finish_training(*workers)

    def test_a_lane_that_accepts_no_connection_for_a_while_is_tried_again(self):
        workers = self.training('refused', 2, '--elements', 100000)
        os.kill(self.aggregator, signal.SIGSTOP)
        self.addCleanup(os.kill, self.aggregator, signal.SIGCONT)
        self.reset('local')
        for worker in workers:
            worker.wait_for('this worker connects again')
        os.kill(self.aggregator, signal.SIGCONT)
        self.go_on(workers)
        finish_training(*workers)

    def forget(self, pid, end):
        """Drops all later packets of the worker's connections, including resets."""
        self.assertGreater(sum(forget_connections(pid, port, end) for port in self.ports), 0)

    def test_a_reset_that_only_the_worker_sees_is_recovered(self):
        workers = self.training('one-way', 2, '--elements', 100000)
        self.forget(self.aggregator, 'local')
        self.reset('remote')
        self.go_on(workers)
        finish_training(*workers)

    def test_a_rank_has_time_to_find_a_silent_connection_and_no_more(self):
        slow = self.training('deaf', 2, '--elements', 100000)
        never = self.training('never', 2, '--elements', 10000)
        never[1].signal(signal.SIGSTOP)
        self.forget(slow[0].pid, 'remote')
        self.reset('local')
        slow[0].wait_for('stopped answering')
        self.go_on(slow)
        finish_training(*slow)
        self.assertEqual(never[0].wait(), 1)
        self.assertRegex(never[0].text(), r"rank 1 of job 'never' \(127\.0\.0\.1:\d+\) has lost "
                                          r"its connection to lane \d for 20 s: ")
        self.service.serve.wait_for('look for a firewall or NAT')

    def test_a_lane_that_refuses_connections_for_a_while_is_tried_again(self):
        workers = self.training('closed', 2, '--elements', 100000)
        # Uses os.dup(): socket.dup() would make the socket blocking, and the aggregator shares this
        # setting.
        doors = [socket.socket(fileno=os.dup(door.fileno())) for port in self.ports
                 for door in connections(self.aggregator, port, 'local', LISTENING)]
        self.assertEqual(len(doors), len(self.ports))
        for door in doors:
            self.addCleanup(door.close)
            door.shutdown(socket.SHUT_RD)
        self.reset('local')
        for worker in workers:
            worker.wait_for('cannot be reached: Connection refused')
        for door in doors:
            door.listen()
        self.go_on(workers)
        finish_training(*workers)

    def push(self, jobs, tensors, elements, seed):
        random = numpy.random.default_rng(seed)
        gradients = [random.random(elements, numpy.float32) for _ in jobs]
        results = [numpy.zeros(elements, numpy.float32) for _ in jobs]
        requests = [job.push_pull(*of, 'sum') for job, *of in
                    zip(jobs, tensors, gradients, results)]
        return requests, results, gradients[0] + gradients[1]

    def finish(self, requests, results, expected):
        for request in requests:
            request.wait(WAIT_MS)
        for result in results:
            self.assertEqual(result.tobytes(), expected.tobytes())

    def test_an_idle_connection_is_made_again_also_twice_in_a_row(self):
        jobs = self.join('idle')
        tensors = [job.declare('w', SHORT) for job in jobs]
        for i, ends in enumerate((ENDS[:1], ENDS[1:], ENDS, ())):
            self.finish(*self.push(jobs, tensors, SHORT, i))
            for end in ends:
                until(lambda: sum(reset_connections(port, end) for port in self.ports) > 0,
                      'a connection is there to be reset')

    def test_a_tensor_of_64_mib_is_summed_though_its_connections_are_reset_in_the_middle(self):
        jobs = self.join('large')
        tensors = [job.declare('w', LARGE) for job in jobs]
        self.finish(*self.push(jobs, tensors, LARGE, 0))
        for i, part in enumerate((1, 3, 6)):    # eighths of the bytes after which the reset comes
            before = received_bytes()
            pushed = self.push(jobs, tensors, LARGE, 1 + i)
            deadline = time.monotonic() + WAIT_MS / 1000
            while received_bytes() < before + part * (4 * LARGE * WORKERS * 2 >> 3):
                self.assertLess(time.monotonic(), deadline, 'nothing is transferred')
            self.reset(ENDS[i % 2])
            self.finish(*pushed)

    def train(self, name, disturb, **how):
        """Trains with Adam. Returns all values after each step."""
        jobs, history = self.join(name, **how), []
        random = numpy.random.default_rng(20261127)
        tensors = [job.declare('w', SHORT * 10, rule='adam') for job in jobs]
        values = [numpy.ones(SHORT * 10, numpy.float32) for _ in jobs]
        for request in [job.broadcast(*of) for job, *of in zip(jobs, tensors, values)]:
            request.wait(WAIT_MS)
        for step in range(12):
            gradients = [random.random(SHORT * 10, numpy.float32) for _ in jobs]
            requests = [job.update(*of, lr=0.01) for job, *of in
                        zip(jobs, tensors, gradients, values)]
            disturb(step)
            for request in requests:
                request.wait(WAIT_MS)
            self.assertEqual(values[0].tobytes(), values[1].tobytes())
            history.append(values[0].tobytes())
        self.assertEqual(list(jobs[0].members().ranks), [0, 1])
        return history

    def test_parameters_and_moments_are_those_of_an_undisturbed_run(self):
        calm = self.train('calm', lambda step: None)
        shaken = self.train('shaken', lambda step: step % 3 or self.reset(ENDS[step // 3 % 2]))
        self.assertEqual(calm, shaken)

    def test_in_an_elastic_job_a_rank_survives_a_reset(self):
        calm = self.train('calm', lambda step: None)
        for name, how in (('goes-on', {'on_worker_loss': 'continue'}), ('grows', {
                'workers_max': 4})):
            shaken = self.train(name, lambda step: step % 3 or self.reset(ENDS[step // 3 % 2]),
                                **how)
            self.assertEqual(calm, shaken)

    def returned(self, name):
        """Returns the ranks that have connected to a lane again, before or after the lane has
        detected the end of the former connection."""
        again = rf"job '{name}' rank (\d)(?: has connected again|: a new connection replaces)"
        return set(re.findall(again, self.service.serve.text()))

    def test_ranks_that_need_a_lane_no_longer_replace_their_reset_connections(self):
        """A lane reports a rank that does not connect again as lost, although the rank runs."""
        for name, who in ('one-undeclares', (0,)), ('all-undeclare', (0, 1)):
            jobs = self.join(name, workers_max=4)
            tensors = [job.declare('w', SHORT) for job in jobs]
            self.finish(*self.push(jobs, tensors, SHORT, 0))
            for rank in who:
                jobs[rank].undeclare(tensors[rank])
            self.reset('local')
            until(lambda name=name: self.returned(name) == {'0', '1'}, 'both ranks have returned',
                  process=self.service.serve)
            self.assertEqual(list(jobs[0].members().ranks), [0, 1])

    def test_a_killed_worker_whose_process_is_not_watched_is_named_at_once(self):
        options = ('--transport', 'tcp', '--rounds', 1000000, '--elements', 10000, '--verbose')
        first = self.service.worker('killed', 0, 2, *options)
        second = Process([*container(), BENCH, 'push', '--endpoint', self.service.endpoint, '--job',
                          'killed', '--rank', 1, '--workers', 2, *options], self.service.folder,
                         'killed.1')
        self.service.children.append(second)
        for worker in (first, second):
            worker.wait_for('round ')
        children = pathlib.Path(f'/proc/{second.pid}/task/{second.pid}/children').read_text()
        watch = progress.Stopwatch()
        os.kill(int(children.split()[0]), signal.SIGKILL)
        self.assertEqual(first.wait(), 1)
        # if only the lane had noticed the end, rank 0 would get the error after 10 s
        self.assertLess(watch.seconds(), 5)
        self.assertIn('rank 1 of job killed', first.text())


if __name__ == '__main__':
    ranks.main(globals())
