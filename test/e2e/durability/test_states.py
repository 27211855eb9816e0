"""Tests reading and writing of states in lanes: by one rank alone (gp_job_read), and by all ranks
together in rounds (gp_save, gp_restore). Further cases: rounds that other ranks have started, a
dead lane, refused calls."""
import errno
import os
import signal
import threading
import unittest

import numpy

import harness
import python_case
import ranks  # sets GRADPOOL_LIBRARY, before gradpool is imported
import gradpool
from gradpool._native import states
from python_case import full, setUpModule, tearDownModule     # noqa: unittest finds these by name

# number of elements, enough for several parts and for pieces on both aggregators
SIZE = 100000
RULE, RATE = 'momentum', {'lr': 1, 'momentum': 0.5}
WAIT_MS = 60000


def zeros(size=SIZE, arrays=1):
    return numpy.zeros(size * arrays, numpy.float32)


class States(python_case.Case):
    def begin(self, **how):
        """Starts two ranks with two tensors, and makes one step with gradients of 1. Parameters
        are then -1, and momentum is 1."""
        name = self.id().rsplit('.', 1)[-1]
        self.client = gradpool.connect(python_case.service.endpoint)
        self.addCleanup(self.client.close)
        self.jobs = [self.client.join(name, rank, 2, **how) for rank in range(2)]
        self.tensors = self.each(lambda job: job.declare_all({'v': 7, 'w': SIZE}, rule=RULE))
        self.values = [[zeros(7), zeros()] for _ in self.jobs]
        for at in range(2):
            self.wait(job.broadcast(tensors[at], values[at]) for job, tensors, values in
                      zip(self.jobs, self.tensors, self.values))
        self.wait([self.push(0), self.push(1)])
        return self.jobs, [tensors[1] for tensors in self.tensors]

    def each(self, function):
        results = [None, None]

        def run(rank):
            results[rank] = function(self.jobs[rank])
        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results

    @staticmethod
    def wait(requests):
        for request in list(requests):
            request.wait(WAIT_MS)

    def push(self, rank):
        """Makes a step with gradients of 1."""
        return self.jobs[rank].update_group(
            [(tensor, full(1, tensor.elements), values) for tensor, values in
             zip(self.tensors[rank], self.values[rank])], **RATE)

    def read(self, rank, *tensors):
        places = {tensor: zeros(tensor.elements, 2) for tensor in tensors or self.tensors[rank]}
        steps = states.read(self.jobs[rank], places, lambda _: RULE)
        return [(steps[tensor], set(arrays[:tensor.elements]), set(arrays[tensor.elements:]))
                for tensor, arrays in places.items()]

    def test_one_rank_reads_while_the_other_has_begun_its_next_step(self):
        self.begin()
        self.assertEqual(self.read(0), [(1, {-1}, {1})] * 2)
        early = self.push(1)
        self.assertEqual(self.read(0), [(1, {-1}, {1})] * 2)
        self.wait([early, self.push(0)])
        self.assertEqual(self.read(1), [(2, {-2.5}, {1.5})] * 2)
        self.assertEqual(self.each(lambda job: self.read(job.rank)), [[(2, {-2.5}, {1.5})] * 2] * 2)

    def test_unnamed_tensors_do_not_change_a_read(self):
        jobs, tensors = self.begin()
        # no rank broadcasts this tensor, and the other rank does not declare it
        jobs[0].declare('unset', 5, rule='adam')
        self.assertEqual(self.read(0, tensors[0]), [(1, {-1}, {1})])

    def test_saved_states_are_restored_and_steps_are_counted_on_after_a_lane_s_death(self):
        jobs, tensors = self.begin(durability='worker')
        saved = zeros(arrays=2)
        self.wait([states.save(jobs[0], tensors[0], RULE, saved),
                   states.save(jobs[1], tensors[1], RULE)])
        self.assertEqual((set(saved[:SIZE]), set(saved[SIZE:])), ({-1}, {1}))
        saved[:SIZE] = 7
        landed = zeros()
        self.wait([states.restore(jobs[0], tensors[0], RULE, saved),
                   states.restore(jobs[1], tensors[1], RULE, parameters=landed)])
        self.assertEqual(set(landed), {7})
        self.assertEqual(self.read(0, tensors[0]), [(1, {7}, {1})])
        pids = python_case.service.pids('up')
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        harness.until(lambda: not set(pids) & set(python_case.service.pids('up')) and
                      len(python_case.service.pids('up')) == 2, 'other aggregators are up')
        self.wait([self.push(0), self.push(1)])
        self.assertEqual(self.read(0), [(2, {-2.5}, {1.5}), (2, {5.5}, {1.5})])

    def test_steps_passed_to_a_restore_become_the_number_of_steps(self):
        jobs, tensors = self.begin()
        given = zeros(arrays=2)
        given[SIZE:] = 4
        self.wait([states.restore(jobs[0], tensors[0], RULE, given, steps=9),
                   states.restore(jobs[1], tensors[1], RULE, parameters=zeros(), steps=9)])
        self.assertEqual(self.read(1, tensors[1]), [(9, {0}, {4})])

    def test_a_late_root_cannot_restore_without_a_number_of_steps(self):
        jobs, tensors = self.begin(on_worker_loss='continue')
        jobs[0].leave()
        late = self.client.join(jobs[0].name, 0, 2, on_worker_loss='continue')
        tensor = late.declare_all({'v': 7, 'w': SIZE}, rule=RULE)[1]
        with self.raises(gradpool.GradpoolError, "tensor 'w'", 'rank 0 joined late',
                         ' and has not counted all updates; pass the number of steps'):
            states.restore(late, tensor, RULE, zeros(arrays=2))
        self.wait([states.restore(late, tensor, RULE, zeros(arrays=2), steps=5),
                   states.restore(jobs[1], tensors[1], RULE, parameters=zeros(), steps=5)])
        self.assertEqual(self.read(1, tensors[1]), [(5, {0}, {0})])

    def test_a_save_during_an_update_of_another_rank_fails_on_both(self):
        jobs, tensors = self.begin()
        saves, steps = states.save(jobs[0], tensors[0], RULE), self.push(1)
        for request in saves, steps:
            with self.raises(gradpool.Mismatch, "tensor 'w'", 'save', 'update'):
                request.wait(WAIT_MS)

    def test_misuse_is_refused(self):
        jobs, tensors = self.begin()
        plain = jobs[0].declare('plain', 10)
        unset = jobs[0].declare('unset', 10, rule=RULE)
        for tensor, words in ((plain, 'without an update rule'), (unset, 'no parameters')):
            for call in (lambda: self.read(0, tensor), lambda: states.save(jobs[0], tensor, RULE)):
                with self.raises(gradpool.GradpoolError, words):
                    call()
        with self.raises(gradpool.Mismatch, 'plain', 'without an update rule'):
            states.restore(jobs[0], plain, RULE, zeros(10, 2))
        with self.raises(gradpool.Mismatch, "state of 'w'", 'expected 200000'):
            states.read(jobs[0], {tensors[0]: zeros()}, lambda _: RULE)
        with self.raises(gradpool.Mismatch, 'root 2 is no rank of a job of 2'):
            states.restore(jobs[0], tensors[0], RULE, parameters=zeros(), root=2)

    def test_a_leave_of_the_job_ends_a_read(self):
        """Rank 0 leaves the job while one of its threads waits for a read. The service is stopped,
        so it does not answer the read."""
        self.begin()
        found = []

        def read():
            try:
                self.read(0)
            except gradpool.GradpoolError as error:
                found.append(error)
        python_case.service.serve.signal(signal.SIGSTOP)
        try:
            before = len(os.listdir('/proc/self/fd'))
            thread = threading.Thread(target=read)
            thread.start()
            harness.until(lambda: len(os.listdir('/proc/self/fd')) > before, 'the read connects')
            self.jobs[0].leave()
            thread.join(WAIT_MS / 1e3)
        finally:
            python_case.service.serve.signal(signal.SIGCONT)
        self.assertFalse(thread.is_alive())
        self.assertEqual(found[0].errno, errno.ECANCELED)
        self.assertIn(': the parameters on lanes were not read: the job was left', str(found[0]))


class Sums(unittest.TestCase):
    def sum_of(self, values):
        return states.Sum([values.nbytes]).over([values.ctypes.data])

    def test_each_changed_or_exchanged_value_changes_the_checksum(self):
        for elements in (1, 15, 16, 17, 100):
            values = numpy.arange(1, elements + 1, dtype=numpy.float32)
            found = {self.sum_of(values)}
            for at in range(elements):
                for other in (numpy.nextafter(values[at], numpy.float32(0)), -values[at]):
                    changed = values.copy()
                    changed[at] = other
                    found.add(self.sum_of(changed))
            self.assertEqual(len(found), 1 + 2 * elements)
            for at in range(1, elements):
                changed = values.copy()
                changed[[0, at]] = changed[[at, 0]]
                found.add(self.sum_of(changed))
            self.assertEqual(len(found), 3 * elements)

    def test_arrays_count_in_their_order_and_with_their_lengths(self):
        one, other = full(1, 40), full(2, 40)
        lengths = states.Sum([160, 160])
        places = [one.ctypes.data, other.ctypes.data]
        self.assertEqual(lengths.over(places), lengths.over(list(places)))
        self.assertNotEqual(lengths.over(places), lengths.over(places[::-1]))
        self.assertNotEqual(states.Sum([80, 80]).over([one.ctypes.data] * 2),
                            states.Sum([160]).over([one.ctypes.data]))


if __name__ == '__main__':
    ranks.main(globals())
