"""Provides tests of the Python package with a service for the module and a job for each case."""
import os
import unittest

import numpy

import harness
import ranks
import gradpool

service = None


def setUpModule():
    """Test modules import this function, and the two definitions below."""
    global service
    service = harness.Service()
    os.environ['GRADPOOL_ENDPOINT'] = service.endpoint


def tearDownModule():
    service.end()


class Case(unittest.TestCase):
    """A test with its own job. All its ranks run in this process."""

    def join(self, workers=1):
        name = self.id().rsplit('.', 1)[-1]
        self.client = gradpool.connect()
        self.addCleanup(self.client.close)
        jobs = [self.client.join(name, rank, workers) for rank in range(workers)]
        return jobs[0] if workers == 1 else jobs

    @staticmethod
    def error_of_clock(job):
        """Ends clocks until one raises the error of an earlier push. Returns the error."""
        found = []

        def has_error():
            try:
                job.clock()
            except gradpool.GradpoolError as error:
                found.append(error)
            return found
        harness.until(has_error, 'clock() raises the error of a push')
        return found[0]

    def times_out(self, wait, *words):
        """Calls `wait`(milliseconds), which must raise a Timeout, until its text has the words. The
        texts of earlier Timeouts may differ, because lanes of a busy host answer late."""
        texts = []

        def has_words():
            with self.assertRaises(gradpool.Timeout) as caught:
                wait(300)
            texts.append(str(caught.exception))
            return all(word in texts[-1] for word in words)
        harness.until(has_words, lambda: f'a Timeout with {words}: {texts[-1:]}')

    def raises(self, kind, *words):
        return ranks.expects(self, kind, *words)


def full(value, count=100):
    return numpy.full(count, value, numpy.float32)
