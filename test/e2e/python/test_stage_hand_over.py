"""Tests hand-overs between two stages. The test stops the lanes, so the hand-overs time out."""
import errno
import os
import resource
import signal

import numpy

import harness
import python_case
import ranks
from python_case import Case, setUpModule, tearDownModule  # noqa: F401
from test_stages import LONG_MS, errors_of, together
import gradpool
import gradpool.stages as stage_calls


class HandOvers(Case):
    """A job of two ranks is in stage 'one', in which rank 0 works alone. Before stage 'all', rank 0
    hands its values over to rank 1."""

    def setUp(self):
        self.jobs = self.join(2)
        self.values = {job.rank: numpy.full(1000, float(job.rank)) for job in self.jobs}
        self.run_stage('one', 1)
        self.run_stage('all', 2)        # both ranks know the tensor of the hand-over from here on
        self.run_stage('one', 1)
        for job in self.jobs:
            self.values[job.rank][:] = 7 + job.rank

    def begin(self, job, name, workers, timeout_ms=LONG_MS, carry=None):
        border = stage_calls._Border(job, timeout_ms, timeout_ms)
        carry = [self.values[job.rank]] if carry is None else carry
        return border.next(stage_calls._Entry(
            {'name': name, 'workers': workers, 'carry': carry}))

    def end(self, job):
        stage_calls._Border(job, LONG_MS, LONG_MS).end(False)

    def run_stage(self, name, workers):
        together(self.jobs, lambda job: (self.begin(job, name, workers), self.end(job)))

    def late(self, carry):
        return errors_of(self.jobs, lambda job: self.begin(job, 'all', 2, 500, carry))

    def time_out(self, carry=None):
        """Stops the lanes during a hand-over, until the calls of both ranks have timed out."""
        pids = python_case.service.pids()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            # on a slow host the border itself may time out first
            harness.until(lambda: all('hand-over' in error.strerror for error in self.late(carry)),
                          'the hand-over times out')
            for error in self.late(carry):
                self.assertIsInstance(error, gradpool.Timeout)
                self.assertIn("the hand-over from rank 0 before stage 'all'", error.strerror)
                self.assertIn('call gp_stage_next() again', error.strerror)
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def test_a_repeated_call_completes_the_hand_over(self):
        self.time_out()
        self.values[0][:] = 9       # the hand-over must still deliver the 7 of the first call
        stages = together(self.jobs, lambda job: self.begin(job, 'all', 2))
        self.assertEqual([stage.place for stage in stages], [0, 1])
        self.assertEqual(self.values[1].tolist(), [7] * 1000)
        together(self.jobs, self.end)
        self.run_stage('one', 1)
        self.run_stage('all', 2)    # the next hand-over delivers the new values
        self.assertEqual(self.values[1].tolist(), [9] * 1000)

    def test_a_call_with_another_stage_is_refused(self):
        self.time_out()
        for name, carry in (('other', None), ('all', [numpy.zeros(3)])):
            for error in errors_of(self.jobs,
                                   lambda job: self.begin(job, name, 2, LONG_MS, carry)):
                self.assertEqual(error.errno, errno.EINVAL)
                self.assertIn("repeat the call for stage 'all' with a carry of 8000 bytes",
                              error.strerror)
        together(self.jobs, lambda job: self.begin(job, 'all', 2))
        self.assertEqual(self.values[1].tolist(), [7] * 1000)

    def test_a_failed_hand_over_fails_each_later_call(self):
        carry = [numpy.zeros(3)]    # a new tensor, which no rank can declare without lanes
        self.time_out(carry)
        self.jobs[1].leave()
        for _ in range(2):
            with self.raises(gradpool.GradpoolError,
                             "the hand-over from rank 0 before stage 'all' has failed"):
                self.begin(self.jobs[0], 'all', 2, LONG_MS, carry)

    def test_later_hand_overs_use_the_memory_of_the_first(self):
        pages = 8192                # of the values of one rank
        self.values = {job.rank: numpy.full(pages * 512, float(job.rank)) for job in self.jobs}
        self.run_stage('all', 2)    # allocates the memory on both ranks
        self.run_stage('one', 1)
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        self.run_stage('all', 2)
        self.assertLess(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults, pages / 4)

    def lend(self):
        """Moves the values of both ranks to memory that lanes use in place."""
        for job in self.jobs:
            lent = numpy.frombuffer(job.alloc(8000), dtype=numpy.float64)
            lent[:] = self.values[job.rank]
            self.values[job.rank] = lent

    def test_values_in_memory_of_the_job_are_handed_over_in_place(self):
        self.lend()
        self.time_out()
        together(self.jobs, lambda job: self.begin(job, 'all', 2))
        self.assertEqual(self.values[1].tolist(), [7] * 1000)

    def test_other_memory_than_that_of_the_first_call_is_refused(self):
        self.lend()
        self.time_out()
        for error in errors_of(self.jobs, lambda job: self.begin(job, 'all', 2, LONG_MS,
                                                                 [numpy.zeros(1000)])):
            self.assertEqual(error.errno, errno.EINVAL)
            self.assertIn("a lane uses the carry of the first call for stage 'all'",
                          error.strerror)
            self.assertIn('repeat the call with the same memory', error.strerror)
        together(self.jobs, lambda job: self.begin(job, 'all', 2))
        self.assertEqual(self.values[1].tolist(), [7] * 1000)


if __name__ == '__main__':
    ranks.main(globals())
