"""Tests requests dropped by a script against a real service. Each round must complete with the
right values, and a failure must be reported."""
import array
import concurrent.futures
import contextlib
import errno
import gc
import importlib.util
import io
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest.mock
import weakref

import ranks
import gradpool
from harness import until
from gradpool.client import Job
from gradpool._process.rounds import _SLOW_AFTER_S
from python_case import Case, full, setUpModule, tearDownModule  # noqa: F401

MANY = 200


class Struck(Exception):
    """Raised by the handler of a signal."""


class RaisingSignals:
    """A context in which signals raise exceptions. After arm() a signal arrives at a random point
    of the following code, and its handler raises Struck. If `is_armed` is False by then, the
    handler does nothing."""

    def __enter__(self):
        self.struck, self.is_armed = 0, False
        self._before = signal.signal(signal.SIGALRM, self._strike)
        return self

    def arm(self):
        self.is_armed = True
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 4e-4))

    def _strike(self, *_):
        if self.is_armed:
            self.is_armed = False
            self.struck += 1
            raise Struck

    def __exit__(self, *error):
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)


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

    def test_a_dropped_round_that_was_muted_reports_no_error(self):
        tensors, others = self.declare('t'), self.declare('another')
        request = self.jobs[0].push_pull(tensors[0], full(1), operation='sum')
        request.mute()
        del request
        with self.raises(gradpool.Mismatch, "'t'"):
            self.jobs[1].push_pull(tensors[1], full(1)).wait()
        until(lambda: not self.jobs[0]._rounds, 'the dropped round ends')
        means = [job.push_pull(tensor, full(1)) for job, tensor in zip(self.jobs, others)]
        for request in means:
            request.wait()

    def test_a_failed_step_reports_one_error(self):
        """The first of several requests fails. The script receives this error, and drops the other
        requests."""
        if not importlib.util.find_spec('torch'):
            self.skipTest('no torch is installed')
        from gradpool._steps.stepping import Requests
        pairs = [self.declare(name) for name in 'ab']
        steps = [Requests([job.push_pull(pair[job.rank], full(1), operation=operation)
                           for pair in pairs])
                 for job, operation in zip(self.jobs, ('sum', 'mean'))]
        for step in steps:
            with self.raises(gradpool.Mismatch, "'a'"):
                step.wait()
            step.mute()
        del step, steps
        until(lambda: not any(map(len, (job._rounds for job in self.jobs))), 'all rounds end')
        others = self.declare('another')
        for request in [job.push_pull(other, full(1)) for job, other in zip(self.jobs, others)]:
            request.wait()

    def test_leaving_raises_the_error_of_a_dropped_round(self):
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
        with gradpool.connect() as client:
            job = client.join('dropped-too', 0, 2)
            job.push_pull(job.declare('t', 100), full(1))
            client._jobs.clear()
            known = weakref.ref(job)
            del job
            # the thread that completes dropped requests (Y11) holds the job while it sleeps for a
            # second
            until(lambda: gc.collect() and False or known() is None, 'the job is collected')
            with client.join('dropped-too', 0, 1) as again:     # refused while the job exists
                again.push_pull(again.declare('t', 100), full(1)).wait()

    def stuck(self):
        """A tensor of rank 0 whose dropped round waits for rank 1."""
        tensor = self.declare('t')[0]
        self.jobs[0].push_pull(tensor, full(1))
        return tensor

    def test_calls_behind_a_dropped_round_name_the_late_rank(self):
        tensor = self.stuck()
        path = os.path.join(tempfile.gettempdir(), 'never-written')
        for call in (lambda: self.jobs[0].push_pull(tensor, full(2)),
                     lambda: self.jobs[0].push_pull_group([(tensor, full(2), None)]),
                     lambda: self.jobs[0].undeclare(tensor),
                     lambda: self.jobs[0].snapshot(path), lambda: self.jobs[0].restore(path)):
            def wait(timeout_ms, call=call):
                self.client._timeout_ms = timeout_ms
                call()
            self.times_out(wait, "'t' round 1: no push from rank 1")

    def test_a_request_that_only_garbage_holds_is_dropped(self):
        gc.disable()
        self.addCleanup(gc.enable)
        for rank, job in enumerate(self.jobs):
            cycle = [job.push_pull(job.declare('t', 100), full(rank))]
            cycle.append(cycle)
            del cycle
        values = [full(1), full(3)]
        for job, mine in zip(self.jobs, values):
            job.push_pull('t', mine)
        until(lambda: all(set(mine) == {2} for mine in values), 'each mean is in place')

    def test_undeclare_waits_for_a_dropped_round(self):
        tensor, values = self.stuck(), full(3)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            gone = pool.submit(self.jobs[0].undeclare, tensor)
            until(lambda: any(one.is_awaited for one in list(self.jobs[0]._rounds._open)),
                  'undeclare() waits')
            self.jobs[1].push_pull('t', values).wait()
            gone.result()
        self.assertEqual((set(values), tensor.handle), ({2}, None))

    def test_leaving_ends_a_push_that_waits_for_a_dropped_round(self):
        for end in Job.leave, lambda job: job.client.close():
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                tensor = self.stuck()
                push = pool.submit(self.jobs[0].push_pull, tensor, full(2))
                until(lambda: any(one.is_awaited for one in list(self.jobs[0]._rounds._open)),
                      'the push waits')
                end(self.jobs[0])
                self.assertIsInstance(push.exception(), gradpool.GradpoolError)
                self.assertNotIsInstance(push.exception(), gradpool.Timeout)
            self.client.close()
            self.jobs = self.join(2)

    def test_one_of_several_threads_raises_the_error_of_a_dropped_round(self):
        rounds = self.jobs[0]._rounds
        rounds._error = gradpool.Timeout(errno.ETIMEDOUT, 'raised by another thread')

        @contextlib.contextmanager
        def lock_after_another_thread():
            rounds._error = None
            yield
        with unittest.mock.patch.object(rounds, '_lock', lock_after_another_thread()):
            rounds.raise_dropped()

    def test_a_process_sleeps_while_a_dropped_round_lacks_a_rank(self):
        self.stuck()
        time.sleep(_SLOW_AFTER_S)      # from this age on, the round is checked less often
        before = self.wake_ups(), time.process_time()
        time.sleep(2)
        self.assertLess(self.wake_ups() - before[0], 60)        # checks every SLICE_MS would be 200
        self.assertLess(time.process_time() - before[1], 0.5)

    @staticmethod
    def wake_ups():
        """Returns how often the thread that completes dropped requests (Y11) has slept."""
        thread, = (one for one in threading.enumerate() if one.name == 'gradpool')
        with open(f'/proc/self/task/{thread.native_id}/status', encoding='ascii') as status:
            return next(int(line.split()[1]) for line in status
                        if line.startswith('voluntary_ctxt_switches'))

    def test_exceptions_of_a_signal_anywhere_in_a_push_lose_no_round(self):
        """The second rank has pushed each tensor: all values are in place after any interruption,
        and leave() does not wait for calls that were interrupted."""
        first, second = [job.declare_all({f't{k}': 100 for k in range(MANY)}) for job in self.jobs]
        values = [full(1) for _ in first]
        for tensor in second:
            self.jobs[1].push_pull(tensor, full(3))
        with RaisingSignals() as signals:
            for tensor, mine in zip(first, values):
                while not any(one.tensors == (tensor,) and one.handle
                              for one in list(self.jobs[0]._rounds._open)) and set(mine) == {1}:
                    try:
                        signals.arm()
                        self.jobs[0].push_pull(tensor, mine).wait()
                        signals.is_armed = False
                    except Struck:
                        pass
        until(lambda: all(set(mine) == {2} for mine in values), 'each mean is in place')
        self.jobs[0].leave()
        self.assertGreater(signals.struck, 0)

    def test_a_signal_handler_may_close_the_client_during_a_wait(self):
        code = ('import numpy, os, signal, sys, threading, gradpool\n'
                'client = gradpool.connect()\n'
                'job = client.join("handler", 0, 2); job.declare("t", 100)\n'
                'def bye(*_):\n'
                '    client.close()\n'
                '    {}\n'
                'signal.signal(signal.SIGTERM, bye)\n'
                'request = job.push_pull("t", numpy.ones(100, numpy.float32))\n'
                'threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()\n'
                'try: request.wait()\n'
                'except gradpool.GradpoolError as error: print(error)\n')
        for end, words in ('sys.exit(0)', ''), ('pass', 'has been left'):
            done = subprocess.run([sys.executable, '-c', code.format(end)], check=False,
                                  capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ''))
            self.assertIn(words, done.stdout)

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
