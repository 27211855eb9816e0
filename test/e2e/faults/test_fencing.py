"""Stops an aggregator (SIGSTOP) while it writes a result. Continues this aggregator when the next
owner of the task serves later rounds. The aggregator must change no byte of any worker's memory."""
import ctypes
import hashlib
import os
import pathlib
import signal
import time
import unittest

import numpy

import ranks  # sets GRADPOOL_LIBRARY, before gradpool is imported
import tap
import gradpool
from harness import GRADPOOL, Process, Service, is_alive, state_of, until

# number of elements in 16 MiB: the write must last long enough to be stopped in the middle
ELEMENTS = 4 << 20
WORKERS = 2
WAIT_MS = 90000
ATTEMPTS = 200      # on a busy host this test seldom runs in the middle of a write
SEED = tap.seed(20261122)


def lent_memory():
    """Returns all memory of this process that lanes may write, as arrays that share the memory."""
    found = []
    for line in pathlib.Path('/proc/self/maps').read_text().splitlines():
        if 'rw-s' in line and '/memfd:gradpool (deleted)' in line:
            first, end = (int(x, 16) for x in line.split()[0].split('-'))
            found.append(numpy.ctypeslib.as_array(
                (ctypes.c_float * ((end - first) // 4)).from_address(first)))
    return found


def digest_of(memory):
    return [hashlib.blake2b(part).hexdigest() for part in memory]


def has_bits(array, expected):
    return numpy.array_equal(array.view(numpy.int32), expected.view(numpy.int32))


def find(memory, values):
    """Finds these values in the memory. Returns arrays that share the memory."""
    found, key = [], values[:16].view(numpy.int32)
    for part in memory:
        words = part.view(numpy.int32)
        for at in numpy.flatnonzero(words == key[0]):
            if words[at:at + 16].tobytes() == key.tobytes():
                found.append(part[at:at + values.size])
    return found


class Training:
    """Both ranks of a job with one tensor, in this process."""

    def __init__(self, case, transport, elements=ELEMENTS):
        self.client = gradpool.connect(case.service.endpoint, transport)
        case.addCleanup(self.client.close)
        self.case, self.elements, self.round = case, elements, 0
        self.random = numpy.random.default_rng(SEED)
        self.jobs = [self.client.join('job', rank, WORKERS) for rank in range(WORKERS)]
        self.tensors = [job.declare('w', elements) for job in self.jobs]
        self.results = [numpy.zeros(elements, numpy.float32) for _ in self.jobs]

    def push(self):
        self.gradients = [self.random.random(self.elements, numpy.float32)
                          for _ in self.jobs]
        self.sum = self.gradients[0] + self.gradients[1]
        self.requests = [job.push_pull(t, g, r, 'sum') for job, t, g, r in
                         zip(self.jobs, self.tensors, self.gradients, self.results)]
        self.round += 1

    def finish(self):
        for request in self.requests:
            request.wait(WAIT_MS)
        self.check()

    def check(self):
        """Checks the results, and that the gradients in shared memory are unchanged."""
        for result in self.results:
            self.case.assertTrue(has_bits(result, self.sum), f'round {self.round}')

    def train(self, rounds):
        for _ in range(rounds):
            self.push()
            self.finish()

    def stop_in_mid_write(self, pid):
        """Starts a round, and stops the process when it has written a part of the result."""
        for _ in range(ATTEMPTS):
            before = self.sum
            landing = find(lent_memory(), before)
            self.case.assertEqual(len(landing), WORKERS)
            probes = [(part, at) for part in landing for at in range(0, ELEMENTS, ELEMENTS >> 6)]
            # before the push, no element may have the new value
            first = [part[at] for part, at in probes]
            self.push()
            deadline = time.monotonic() + 60
            while all(part[at] == value for (part, at), value in zip(probes, first)):
                self.case.assertLess(time.monotonic(), deadline, 'nothing was written')
            os.kill(pid, signal.SIGSTOP)
            until(lambda: state_of(pid) == 'T', 'it is stopped')
            written = sum(int((part == self.sum).sum()) for part in landing)
            if 0 < written < WORKERS * ELEMENTS:
                return written / (WORKERS * ELEMENTS)
            os.kill(pid, signal.SIGCONT)
            self.finish()
        raise AssertionError('never stopped in mid-write')


class Fencing(unittest.TestCase):
    def start(self, aggregators):
        self.service = Service('--aggregator-timeout', 3, aggregators=aggregators)
        self.addCleanup(self.service.end)

    def join_by_hand(self, name):
        """Starts an aggregator that is not a child of the coordinator, so that the coordinator
        cannot kill it."""
        process = Process([GRADPOOL, 'aggregator', '--join',
                           self.service.endpoint.removeprefix('gradpool://'), '--cores', '0'],
                          self.service.folder, name, self.service.operator())
        self.addCleanup(process.kill)
        process.wait_for('joined as aggregator')
        return process

    def lose(self, training, pid):
        """Stops the process while it writes. Then the next owner repeats this round, and serves one
        more round. Returns all memory that lanes may write."""
        part = training.stop_in_mid_write(pid)
        began = time.monotonic()
        training.finish()
        taken = time.monotonic() - began
        training.train(2)
        print(f'# stopped with {100 * part:.0f} % of the result written; the round went on after '
              f'{taken:.2f} s (seed {SEED})')
        return taken

    def check_it_goes_on_in_vain(self, training, process):
        memory = lent_memory()
        before = digest_of(memory)
        process.signal(signal.SIGCONT)
        process.wait_for('counted as lost, so it joins as a new one')
        self.assertIn('counts as lost: its connection had ended for too long', process.text())
        self.assertEqual(digest_of(memory), before)
        training.check()
        training.train(2)
        self.assertEqual(len(find(lent_memory(), training.sum)), WORKERS)

    def test_a_continued_aggregator_that_joined_by_hand_changes_no_byte_over_tcp(self):
        self.start(0)
        stopped = self.join_by_hand('stopped')
        training = Training(self, 'tcp')
        training.train(1)
        self.join_by_hand('successor')
        self.lose(training, stopped.pid)
        self.assertTrue(is_alive(stopped.pid))
        self.check_it_goes_on_in_vain(training, stopped)

    def test_an_aggregator_joined_by_hand_is_killed_by_a_worker_on_its_host(self):
        self.start(0)
        stopped = self.join_by_hand('stopped')
        training = Training(self, 'shm')
        training.train(1)
        self.join_by_hand('successor')
        self.lose(training, stopped.pid)
        self.assertEqual(stopped.wait(), -signal.SIGKILL)
        training.train(1)

    def test_a_local_aggregator_is_killed_before_its_successor_begins(self):
        for transport in 'shm', 'tcp':
            with self.subTest(transport=transport):
                self.start(2)
                training = Training(self, transport)
                training.train(1)
                pid = next(a['pid'] for a in self.service.status()['aggregators']
                           if any(lane['tasks'] for lane in a['lanes']))
                before = len(self.service.serve.text())
                self.lose(training, pid)
                self.assertFalse(is_alive(pid))
                log = self.service.serve.text()[before:]
                self.assertLess(log.index(f'pid {pid}) has ended'), log.index('have new lanes'))
                training.client.close()
                self.service.end()


if __name__ == '__main__':
    tap.main()
