"""Tests requests dropped by a script against a real service. Each round must complete with the
right values, and a failure must be reported."""
import array
import concurrent.futures
import contextlib
import gc
import io
import os
import subprocess
import sys
import threading

import ranks
import gradpool
from harness import until
from python_case import Case, full, setUpModule, tearDownModule  # noqa: F401

MANY = 200


class Dropped(Case):
    def setUp(self):
        self.jobs = self.join(2)

    def declare(self, name, elements=100):
        return [job.declare(name, elements) for job in self.jobs]

    def test_two_hundred_dropped_rounds_are_in_place_without_another_call(self):
        values = [[full(rank + k) for k in range(MANY)] for rank in range(2)]
        for job, mine in zip(self.jobs, values):
            tensors = job.declare_all({f't{k}': 100 for k in range(MANY)})
            for tensor, some in zip(tensors, mine):
                job.push_pull(tensor, some)
        until(lambda: all(set(some) == {k + 0.5} for mine in values for k, some in enumerate(mine)),
              'each mean is in place')

    def test_every_call_that_starts_a_round_may_be_dropped(self):
        mean, copied, sent, stepped = [[full(rank) for rank in range(2)] for _ in range(4)]
        for rank, job in enumerate(self.jobs):
            job.push_pull_group([(job.declare('mean', 100), mean[rank], None)])
            job.broadcast(job.declare('copied', 100), copied[rank], root=1)
            pair = job.declare('sent', 100, ranks=(0, 1))
            (job.receive if rank else job.send)(pair, sent[rank])
            job.broadcast(job.declare('stepped', 100, rule='sgd'), full(5))
        for rank, job in enumerate(self.jobs):
            job.update('stepped', stepped[rank], lr=2.0)
        until(lambda: [set(some[rank]) for some in (mean, copied, sent, stepped)
                       for rank in range(2)] == [{0.5}] * 2 + [{1}] * 2 + [{0}] * 2 + [{4}] * 2,
              'all values are in place')

    def test_the_next_push_of_a_tensor_waits_for_the_round_that_was_dropped(self):
        first, second = self.declare('t')
        values = [full(1), full(2)], [full(3), full(4)]
        self.jobs[0].push_pull(first, values[0][0])

        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            again = pool.submit(lambda: self.jobs[0].push_pull(first, values[0][1]).wait())
            for some in values[1]:
                self.jobs[1].push_pull(second, some).wait()
            again.result()
        self.assertEqual([set(some) for mine in values for some in mine], [{2}, {3}] * 2)

    def test_rounds_of_one_tensor_may_all_be_dropped(self):
        values = [[full(rank + k) for k in range(20)] for rank in range(2)]

        def push(job, mine):
            for some in mine:
                job.push_pull('t', some)
        self.declare('t')
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(push, self.jobs, values))
        until(lambda: all(set(some) == {k + 0.5} for mine in values for k, some in enumerate(mine)),
              'each mean is in place')

    def test_the_next_push_raises_the_error_of_a_round_that_was_dropped(self):
        tensors = self.declare('t')
        others = self.declare('another')
        self.jobs[0].push_pull(tensors[0], full(1), operation='sum')
        with self.raises(gradpool.Mismatch, "'t'"):
            self.jobs[1].push_pull(tensors[1], full(1)).wait()
        until(lambda: not self.jobs[0]._rounds, 'the dropped round ends')
        with self.raises(gradpool.Mismatch, "'t'"):
            self.jobs[0].push_pull(others[0], full(1))
        with self.silent() as said:
            self.jobs[0].leave()
        self.assertEqual(said.getvalue(), '')     # each failure is reported only once

    def test_leaving_tells_the_error_of_a_round_that_was_dropped(self):
        for tensor, operation in zip(self.declare('t'), ('sum', 'mean')):
            tensor.job.push_pull(tensor, full(1), operation=operation)
        for rank, job in enumerate(self.jobs):
            until(lambda: not job._rounds, 'the dropped round ends')
            with self.silent() as said:
                job.leave()
            self.assertIn(f'rank {rank}, a round without a Request: ', said.getvalue())
            self.assertIn("'t'", said.getvalue())

    @staticmethod
    def silent():
        return contextlib.redirect_stderr(io.StringIO())

    def test_memory_is_lent_until_the_dropped_round_is_over(self):
        tensors = self.declare('t')
        values = array.array('f', [1] * 100)
        self.jobs[0].push_pull(tensors[0], values)
        gc.collect()
        with self.assertRaises(BufferError):
            values.append(1)
        self.jobs[1].push_pull(tensors[1], full(3)).wait()
        until(lambda: not self.jobs[0]._rounds, 'the dropped round ends')
        values.append(1)
        self.assertEqual(values[99], 2)

    def test_leaving_the_job_ends_dropped_rounds(self):
        tensors = self.declare('t')
        values = array.array('f', [1] * 100)
        self.jobs[0].push_pull(tensors[0], values)
        with self.silent() as said:
            self.jobs[0].leave()
        values.append(1)
        self.assertEqual(said.getvalue(), '')

    def test_a_job_that_is_dropped_with_its_requests_is_left(self):
        tensors = self.declare('t')
        with gradpool.connect() as client:
            job = client.join('dropped-too', 0, 2)
            job.push_pull(job.declare('t', 100), full(1))
            client._jobs.clear()
            del job
            gc.collect()
            # refused as long as the first job exists
            with client.join('dropped-too', 0, 1) as again:
                again.push_pull(again.declare('t', 100), full(1)).wait()
        self.assertEqual(tensors[0].workers, 2)

    def test_a_forked_child_leaves_dropped_requests_to_its_parent(self):
        tensors, values = self.declare('t'), [full(1), full(3)]
        requests = [self.jobs[0].push_pull(tensors[0], values[0])]
        pid = os.fork()
        if pid == 0:
            requests.clear()
            os._exit(threading.active_count() - 1)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.jobs[1].push_pull(tensors[1], values[1]).wait()
        requests[0].wait()
        self.assertEqual(set(values[0]), {2})

    def test_an_interpreter_that_ends_with_dropped_requests_ends(self):
        code = ('import numpy, gradpool\n'
                'job = gradpool.connect().join("ends", 0, 2)\n'
                'job.declare("t", 100); job.declare("u", 100)\n'
                'kept = job.push_pull("t", numpy.ones(100, numpy.float32))\n'
                '{}job.push_pull("u", numpy.ones(100, numpy.float32))\n')
        for start in '', 'also_kept = ':
            done = subprocess.run([sys.executable, '-c', code.format(start)], check=False,
                                  capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ''))


if __name__ == '__main__':
    ranks.main(globals())
