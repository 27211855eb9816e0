"""Snapshots that workers take of their own job where things do not go as planned: ranks have left
or come back, or one is late and the time of another has run out."""
import concurrent.futures
import os
import pathlib
import tempfile
import unittest
import unittest.mock

import numpy

import harness
import ranks  # sets GRADPOOL_LIBRARY: before gradpool
import tap
import gradpool

WAIT_MS = 20000
WORKERS = 3
SIZES = {'v': 300, 'w': 70000}


class JobSnapshots(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix='gradpool-snapshots-')
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / 'snapshot'
        self.service = harness.Service(aggregators=1)
        self.addCleanup(self.service.end)
        self.jobs, self.tensors, self.values = {}, {}, {}
        self.pool = concurrent.futures.ThreadPoolExecutor(WORKERS)
        self.addCleanup(self.pool.shutdown)

    def join(self, *who, timeout_ms=WAIT_MS, **how):
        for rank in who:
            with unittest.mock.patch.dict(os.environ, GRADPOOL_TIMEOUT_MS=str(timeout_ms)):
                client = gradpool.connect(self.service.endpoint)
            self.addCleanup(client.close)
            self.jobs[rank] = client.join('job', rank, WORKERS, **how)

    def declare(self, *who):
        for rank, tensors in zip(who, self.each(lambda job, rank: job.declare_all(
                SIZES, rule='sgd'), *who)):
            self.tensors[rank] = tensors
            self.values[rank] = [numpy.zeros(size, numpy.float32) for size in SIZES.values()]

    def each(self, function, *who):
        """function(job, rank) in all of them at once; the first error is raised."""
        going = [self.pool.submit(function, self.jobs[rank], rank) for rank in who or self.jobs]
        return [one.result() for one in going]

    def begin(self):
        self.declare(*self.jobs)
        for at in range(len(SIZES)):
            self.each(lambda job, rank: job.broadcast(self.tensors[rank][at],
                                                      self.values[rank][at]).wait(WAIT_MS))

    def step(self, expected):
        """Each takes 1 from all parameters."""
        def update(job, rank):
            job.update_group([(tensor, numpy.ones_like(value), value) for tensor, value in
                              zip(self.tensors[rank], self.values[rank])], lr=1).wait(WAIT_MS)
        self.each(update)
        self.check(expected)

    def check(self, expected):
        for values in self.values.values():
            for value in values:
                self.assertTrue((value == expected).all(), value[:5])

    def leave(self, rank):
        self.jobs.pop(rank).leave()
        self.tensors.pop(rank), self.values.pop(rank)

    def snapshot(self, job, rank):
        return job.snapshot(self.path)

    def restore(self, expected):
        self.each(lambda job, rank: job.restore(self.path, dict(zip(self.tensors[rank],
                                                                    self.values[rank]))))
        self.check(expected)

    def test_who_is_there_saves_and_the_first_of_them_has_the_file(self):
        self.join(0, 1, 2, workers_max=4, on_worker_loss='continue')
        self.begin()
        self.step(-1)
        self.each(self.snapshot)
        self.path.unlink()
        self.leave(0)
        self.step(-2)
        self.each(self.snapshot)
        self.step(-3)
        self.restore(-2)
        self.leave(2)
        self.step(-3)
        self.each(self.snapshot)
        self.restore(-3)

    def test_who_came_back_is_waited_for(self):
        self.join(0, 1, 2, on_worker_loss='continue')
        self.begin()
        self.step(-1)
        self.each(self.snapshot)
        self.leave(1)
        self.step(-2)
        self.join(1, on_worker_loss='continue')
        self.declare(1)
        self.step(-3)
        early = [self.pool.submit(self.snapshot, self.jobs[rank], rank) for rank in (0, 2)]
        done, _ = concurrent.futures.wait(early, timeout=0.3)
        self.assertFalse(done)
        self.snapshot(self.jobs[1], 1)
        for one in early:
            one.result()
        self.step(-4)
        self.restore(-3)

    def late(self, call, *who):
        """These call while the others do not, and give up."""
        for rank in who:
            with self.assertRaises(gradpool.Timeout):
                call(self.jobs[rank], rank)

    def test_a_rank_that_was_late_spoils_no_later_snapshot(self):
        self.join(0, 1, 2, timeout_ms=700)
        self.begin()
        self.step(-1)
        self.late(self.snapshot, 0, 1, 2)
        self.step(-2)
        self.each(self.snapshot)
        self.late(self.snapshot, 2, 1, 0)
        self.late(self.snapshot, 0)
        self.step(-3)
        self.restore(-2)
        self.late(lambda job, rank: job.restore(self.path), 1, 0, 2)
        self.each(self.snapshot)
        self.step(-3)
        self.restore(-2)

    def test_saving_and_restoring_at_once_is_refused(self):
        self.join(0, 1, 2)
        self.begin()
        self.each(self.snapshot)

        def both(job, rank):
            with self.assertRaises(gradpool.GradpoolError) as caught:
                self.snapshot(job, rank) if rank else job.restore(self.path)
            return str(caught.exception)
        for text in self.each(both):
            self.assertIn('save and restore at the same time', text)
        self.each(self.snapshot)


if __name__ == '__main__':
    tap.main()
