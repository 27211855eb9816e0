"""Tests snapshots that workers take of their own job in unusual situations: ranks have left or have
joined again, one rank is late, or one rank has timed out."""
import concurrent.futures
import errno
import os
import pathlib
import signal
import tempfile
import threading
import unittest
import unittest.mock

import numpy

import harness
import ranks  # sets GRADPOOL_LIBRARY, before gradpool is imported
import tap
import gradpool

WAIT_MS = 60000
WORKERS = 3
COMINGS = 20 if 'GRADPOOL_TEST_LONG' in os.environ else 5
SIZES = {'v': 300, 'w': 70000}
# with momentum 0, moments are stored but have no effect
RULES = {'v': 'sgd', 'w': 'momentum'}


class JobSnapshots(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix='gradpool-snapshots-')
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / 'snapshot'
        self.service = harness.Service(aggregators=1)
        self.addCleanup(self.service.end)
        self.jobs, self.tensors, self.values, self.iterations = {}, {}, {}, {}
        self.pool = concurrent.futures.ThreadPoolExecutor(WORKERS)
        self.addCleanup(self.pool.shutdown)

    def join(self, *who, timeout_ms=WAIT_MS, **how):
        for rank in who:
            with unittest.mock.patch.dict(os.environ, GRADPOOL_TIMEOUT_MS=str(timeout_ms)):
                client = gradpool.connect(self.service.endpoint)
            self.addCleanup(client.close)
            self.jobs[rank] = client.join('job', rank, WORKERS, **how)

    def declare(self, *who):
        for rank, tensors in zip(who, self.each(lambda job, rank: [
                job.declare(name, size, rule=RULES[name]) for name, size in SIZES.items()], *who)):
            self.tensors[rank] = tensors
            self.values[rank] = [numpy.zeros(size, numpy.float32) for size in SIZES.values()]

    def each(self, function, *who):
        """Runs function(job, rank) at the same time in the given ranks, or in all ranks. Raises
        the first error."""
        going = [self.pool.submit(function, self.jobs[rank], rank) for rank in who or self.jobs]
        return [one.result() for one in going]

    def begin(self):
        self.declare(*self.jobs)
        for at in range(len(SIZES)):
            self.each(lambda job, rank: job.broadcast(self.tensors[rank][at],
                                                      self.values[rank][at]).wait(WAIT_MS))

    def update(self, job, rank):
        """Subtracts 1 from every parameter."""
        job.update_group([(tensor, numpy.ones_like(value), value) for tensor, value in
                          zip(self.tensors[rank], self.values[rank])], lr=1,
                         momentum=0).wait(WAIT_MS)

    def step(self, expected):
        self.each(self.update)
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

    def test_the_present_ranks_save_and_the_lowest_writes_the_file(self):
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

    def train_and_save(self, job, rank, stop, is_over, times=1000000):
        """Trains for `times` iterations, or until rank 0 announces the end in a round."""
        says, said = numpy.zeros((2, 1), numpy.float32)
        done = 0
        while done < times and not said[0]:
            says[0] = rank == 0 and is_over.is_set()
            job.push_pull(stop, says, said, 'sum').wait(WAIT_MS)
            self.update(job, rank)
            self.snapshot(job, rank)
            done += 1
            self.iterations[rank] = done
        return done

    def test_a_late_worker_enters_between_two_snapshots(self):
        self.join(0, 1, 2, on_worker_loss='continue')
        self.begin()
        stops = self.each(lambda job, rank: job.declare('stop', 1))
        self.leave(2)
        is_over = threading.Event()
        others = [self.pool.submit(self.train_and_save, self.jobs[rank], rank, stops[rank], is_over)
                  for rank in (0, 1)]
        harness.until(lambda: self.iterations.get(0, 0) > 3, 'where an iteration ends is known')
        for _ in range(COMINGS):
            self.join(2, on_worker_loss='continue')
            self.declare(2)
            stop = self.jobs[2].declare('stop', 1)
            self.assertEqual(self.train_and_save(self.jobs[2], 2, stop, is_over, 3), 3)
            self.leave(2)
        is_over.set()
        done = [one.result() for one in others]
        self.assertGreaterEqual(done[0], 3 * COMINGS)
        self.assertEqual(*done)
        self.restore(-done[0])

    def test_a_returned_rank_is_awaited(self):
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
        """Makes the call only on these ranks. The calls time out, because they wait for the other
        ranks."""
        for rank in who:
            with self.assertRaisesRegex(gradpool.Timeout, r'gp_job_\w+\(\) waits for all ranks: '):
                call(self.jobs[rank], rank)

    def test_a_rank_that_was_late_spoils_no_later_snapshot(self):
        # timeout_ms: only calls that wait for a missing rank reach this deadline, even on a busy
        # host
        self.join(0, 1, 2, timeout_ms=5000)
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
            self.assertIn('call one of them on all ranks', text)
        self.each(self.snapshot)

    def refused(self, call, code, *words):
        """Makes the call on all ranks, which must all get this error. Returns the texts of the
        errors."""
        def one(job, rank):
            with self.assertRaises(gradpool.GradpoolError) as caught:
                call(job, rank)
            self.assertEqual(caught.exception.errno, code, caught.exception)
            return str(caught.exception)
        texts = self.each(one)
        for word in words:
            self.assertIn(word, ' | '.join(texts))
        return texts

    def test_a_save_before_the_first_broadcast_changes_nothing(self):
        self.join(0, 1, 2)
        self.declare(0, 1, 2)

        def broadcast(at):
            self.each(lambda job, rank: job.broadcast(self.tensors[rank][at],
                                                      self.values[rank][at]).wait(WAIT_MS))
        broadcast(0)
        for text in self.refused(self.snapshot, errno.ENODATA):
            self.assertIn("tensor 'w' has no parameters yet", text)
        self.assertFalse(self.path.exists())
        broadcast(1)
        self.each(self.snapshot)
        self.step(-1)
        self.restore(0)

    def test_a_late_worker_sees_that_no_parameters_were_broadcast(self):
        self.join(0, 1, 2, on_worker_loss='continue')
        self.declare(0, 1, 2)
        for late in (1, 0):
            self.leave(late)
            self.join(late, on_worker_loss='continue')
            self.declare(late)
            self.refused(self.snapshot, errno.ENODATA, 'no parameters yet')
        for at in range(len(SIZES)):
            self.each(lambda job, rank: job.broadcast(self.tensors[rank][at],
                                                      self.values[rank][at]).wait(WAIT_MS))
        self.each(self.snapshot)
        self.step(-1)
        self.restore(0)

    def test_the_error_names_the_rank_whose_request_is_open(self):
        self.join(0, 1, 2)
        self.begin()

        def update(job, rank):
            value = self.values[rank][0]
            return job.update(self.tensors[rank][0], numpy.ones_like(value), value, lr=1)
        for call in (self.snapshot, lambda job, rank: job.restore(self.path)):
            early = update(self.jobs[1], 1)
            texts = self.refused(call, errno.EBUSY, "tensor 'v' has an open request; "
                                 'wait for the request first')
            self.assertEqual(sum('rank 1 failed (' in text for text in texts), 2, texts)
            self.assertEqual(sum('); see the error of that rank' in text for text in texts), 2)
            for request in [update(self.jobs[rank], rank) for rank in (0, 2)] + [early]:
                request.wait(WAIT_MS)
        self.each(self.snapshot)

    def test_a_rank_that_lost_a_lane_gets_its_number_and_continues(self):
        self.join(0, 1, 2)
        self.begin()
        self.step(-1)
        self.each(self.snapshot)
        aggregator = self.service.status()['aggregators'][0]
        os.kill(aggregator['pid'], signal.SIGKILL)

        def lose_and_restore(job, rank):
            values = dict(zip(SIZES, self.values[rank]))
            requests = [job.update(tensor, numpy.ones_like(values[tensor.name]),
                                   values[tensor.name], lr=1, momentum=0)
                        for tensor in self.tensors[rank]]
            for request, tensor in zip(requests, self.tensors[rank]):
                with self.assertRaises(gradpool.GradpoolError) as caught:
                    request.wait(WAIT_MS)
                self.assertEqual(caught.exception.errno, errno.EOWNERDEAD)
                self.assertIn(f"of aggregator {aggregator['aggregator']} on ",
                              str(caught.exception))
            for tensor in self.tensors[rank]:
                job.undeclare(tensor)
            job.barrier()
            self.tensors[rank] = [job.declare(name, size, rule=RULES[name])
                                  for name, size in SIZES.items()]
            job.restore(self.path, dict(zip(self.tensors[rank], self.values[rank])))
        self.each(lose_and_restore)
        self.check(-1)
        self.step(-2)

    def test_a_job_without_update_rules_has_no_snapshot(self):
        self.join(0, 1, 2)
        self.each(lambda job, rank: job.declare('sum', 5))
        for call in (self.snapshot, lambda job, rank: job.restore(self.path)):
            self.refused(call, errno.EINVAL, 'has an update rule')
        self.assertFalse(self.path.exists())


if __name__ == '__main__':
    tap.main()
