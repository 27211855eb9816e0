"""Tests wrong calls of the package gradpool against a real service. An error must name the script's
mistake. The script's memory must never be damaged."""
import array
import errno
import os
import signal
import threading
import time
from unittest import mock

import ranks
import progress
import gradpool
from python_case import Case, full, setUpModule, tearDownModule  # noqa: F401


class Handles(Case):
    def test_a_tensor_that_is_gone_is_refused_by_every_call(self):
        job = self.join()
        tensor = job.declare('t', 100)
        job.undeclare(tensor)
        for call in self.calls(job, tensor):
            with self.raises(gradpool.Mismatch, "'t'", 'has been undeclared'):
                call()

    def test_a_tensor_of_another_job_is_refused_by_every_call(self):
        jobs = self.join(2)
        tensor = jobs[0].declare('t', 100)
        for _ in range(2):
            for call in self.calls(jobs[1], tensor):
                with self.raises(gradpool.Mismatch, "'t'", 'rank 0, not of', 'rank 1'):
                    call()
            jobs[0].leave()

    def test_a_tensor_of_a_job_that_was_left_is_refused_by_every_call(self):
        job = self.join()
        tensor = job.declare('t', 100)
        job.leave()
        for call in self.calls(job, tensor):
            with self.raises(gradpool.GradpoolError, 'closed'):
                call()

    @staticmethod
    def calls(job, tensor):
        return (lambda: job.undeclare(tensor), lambda: job.broadcast(tensor, full(0)),
                lambda: job.push_pull(tensor, full(0)), lambda: job.update(tensor, full(0)))

    def test_leaving_ends_the_wait_of_another_thread(self):
        for end in 'job', 'client':
            with gradpool.connect() as client:
                job = client.join('waits-' + end, 0, 2)
                request = job.push_pull(job.declare('t', 100), full(1))
                found = []
                waiter = threading.Thread(target=self.keep_error, args=(request, found))
                waiter.start()
                while job.client._users == 0:
                    time.sleep(0.001)
                (job.leave if end == 'job' else client.close)()
                waiter.join(20)
                self.assertEqual([error.errno for error in found], [errno.ECANCELED])

    def test_a_request_of_a_job_that_was_left_raises_that_reason_afterwards(self):
        with gradpool.connect() as client:
            job = client.join('left before the wait', 0, 2)
            request = job.push_pull(job.declare('t', 100), full(1))
            job.leave()
            with self.raises(gradpool.GradpoolError, ' has been left: join the job again'):
                request.wait()

    def test_a_forked_process_is_refused_with_the_advice_to_connect(self):
        job = self.join()
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                job.declare('t', 100)
            except gradpool.Forked as error:
                os.write(writing, str(error).encode())
            finally:
                os._exit(0)
        os.close(writing)
        with open(reading) as told:
            self.assertIn(f'this Job belongs to process {os.getpid()}; a forked child must not '
                          'use it: connect again there', told.read())
        os.waitpid(pid, 0)

    def test_a_path_that_c_would_cut_is_refused(self):
        with gradpool.connect() as client, client.join('paths', 0, 1) as job:
            for path in ('', 'a\0b'):
                with self.assertRaisesRegex(gradpool.Mismatch, 'is empty, or has a NUL byte; give '
                                            'the path of a file'):
                    job.snapshot(path)
            with self.assertRaisesRegex(gradpool.Mismatch, 'NUL byte'):
                gradpool.Backup('static:2', record='a\0b').spec  # noqa: B018

    def test_a_signal_interrupts_every_call_that_waits_for_other_ranks(self):
        with gradpool.connect() as client, \
                client.join('signals', 0, 2, workers_max=3) as job:
            request = job.push_pull(job.declare('t', 100), full(1))
            for call in (lambda: request.wait(30000), lambda: job.barrier(30000),
                         lambda: job.resize(3, 30000), lambda: job.snapshot('/nowhere')):
                self.interrupt(call)
            watch = progress.Stopwatch()
        self.assertLess(watch.seconds(), 10)     # leaving the job ends waiting calls

    def interrupt(self, call):
        before = signal.signal(signal.SIGALRM, signal.default_int_handler)
        watch = progress.Stopwatch()
        try:
            with self.assertRaises(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 0.3)
                call()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        self.assertLess(watch.seconds(), 10)

    @staticmethod
    def keep_error(request, found):
        try:
            request.wait(15000)
        except gradpool.GradpoolError as error:
            found.append(error)


class Arguments(Case):
    def test_arrays_of_a_wrong_size_for_the_operation_are_refused(self):
        job = self.join(2)[0]
        job.declare('t', 100)
        short, long = full(0), full(0, 200)
        for operation, gradient, result, *words in (
                ('gather', short, short, "result of 't'", '2 workers', '100', 'expected 200'),
                ('gather', long, long, "gradient of 't'", '200', 'expected 100'),
                ('all-to-all', short, long, "gradient of 't'", 'expected 200'),
                ('all-to-all', long, short, "result of 't'", 'expected 200'),
                ('reduce-scatter', short, short, "gradient of 't'", 'expected 200'),
                ('reduce-scatter', long, long, "result of 't'", 'expected 100'),
                ('reduce-scatter', long, None, "'t'", 'cannot overwrite its gradient')):
            with self.subTest(operation), self.raises(gradpool.Mismatch, *words):
                job.push_pull('t', gradient, result, operation)

    def test_numbers_that_c_cannot_represent_are_refused(self):
        job = self.join()
        for call, *words in (
                (lambda: self.client.join('j', 2**32, 1), 'rank is 4294967296'),
                (lambda: self.client.join('j', -1, 1), 'rank is -1'),
                (lambda: self.client.join('j', 0, 2**32 + 1), 'workers is 4294967297'),
                (lambda: self.client.join('j', 0.5, 1), 'rank is 0.5', 'whole number'),
                (lambda: job.declare('t', 2**64 + 5), "elements of 't'", '18446744073709551621'),
                (lambda: job.declare('t', -1), "elements of 't'", '-1'),
                (lambda: job.broadcast(job.declare('t', 1), full(0, 1), 2**32), 'root is'),
                (lambda: job.barrier(2**32 + 1), 'timeout_ms is 4294967297'),
                (lambda: gradpool.connect(connect_timeout_ms=2**32), 'connect_timeout_ms is')):
            with self.subTest(words[0]), self.raises(gradpool.Mismatch, *words):
                call()

    def test_an_endpoint_where_no_service_answers_is_an_error_of_its_own(self):
        for endpoint, *words in ((None, 'no endpoint', 'GRADPOOL_ENDPOINT'),
                                 ('gradpool://127.0.0.1:1', 'Connection refused', 'serve'),
                                 ('gradpool+unix:///nowhere/gradpool', 'No such file', 'path')):
            with self.subTest(endpoint), mock.patch.dict(os.environ), \
                    self.raises(gradpool.Unreachable, *words):
                os.environ.pop('GRADPOOL_ENDPOINT', None)
                gradpool.connect(endpoint, connect_timeout_ms=1)

    def test_names_with_a_zero_byte_are_refused(self):
        job = self.join()
        for call in (lambda: self.client.join('a\0b', 0, 1), lambda: job.declare('a\0b', 1),
                     lambda: gradpool.connect('gradpool://127.0.0.1:1\0'),
                     lambda: gradpool.connect(transport='tcp\0')):
            with self.raises(gradpool.Mismatch, '\\x00', 'NUL'):
                call()


class Loans(Case):
    def test_lent_memory_cannot_be_resized_until_the_request_ends(self):
        jobs = self.join(2)
        for job in jobs:
            job.declare('t', 100)
        values = array.array('f', [1] * 100), bytearray(400)
        request = jobs[0].push_pull('t', values[0], memoryview(values[1]).cast('f'))
        for lent in values:
            with self.assertRaises(BufferError):
                lent.extend(lent)
        jobs[1].push_pull('t', full(3)).wait()
        request.wait()
        for back in values:
            back.extend(back)
        self.assertEqual(memoryview(values[1]).cast('f')[99], 2)

    def test_memory_of_a_refused_or_ended_request_is_not_lent(self):
        job = self.join(2)[0]
        job.declare('t', 100)
        refused, ended = array.array('f', [1] * 101), array.array('f', [1] * 100)
        with self.raises(gradpool.Mismatch, '101'):
            job.push_pull('t', refused)
        refused.append(1)
        request = job.push_pull('t', ended)
        with self.raises(gradpool.GradpoolError, 'wait for the request'):
            job.push_pull('t', refused[:100])
        job.leave()
        ended.append(1)
        self.assertTrue(request.done())


if __name__ == '__main__':
    ranks.main(globals())
