"""Tests values, refusals and failures of the package gradpool against a real service. If possible,
all ranks of a job run in this process: a push returns at once, so one thread is enough."""
import array
import ctypes
import errno
import gc
import os
import signal
import subprocess
import sys
import threading
import unittest
import unittest.mock

import numpy

import harness
import progress
import python_case
import ranks
import gradpool
from python_case import Case, full, setUpModule, tearDownModule  # noqa: F401

LEAST_MS = 200


def rank_pushes_until_killed(rank, workers):
    """Rank 1 is killed during a round. Rank 0 returns its error."""
    job = gradpool.connect().join('killed', rank, workers)
    tensor = job.declare('t', 1000)
    values = numpy.ones(1000, numpy.float32)
    try:
        # rank 0 gets the error in the second round, or on a busy host already in the first one
        for _ in range(2):
            job.push_pull(tensor, values).wait()
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
    except gradpool.PeerLost as error:
        return str(error)
    return 'no error'


class Values(Case):
    def test_two_threads_may_wait_for_requests_of_their_own(self):
        jobs, rounds = self.join(2), 20
        wrong = []

        def train(job, name):
            tensor = job.declare(name, 5000)
            for number in range(1, rounds + 1):
                values = numpy.full(5000, float(number * (job.rank + 1)), numpy.float32)
                job.push_pull(tensor, values, operation='sum').wait(20000)
                if not (values == 3.0 * number).all():
                    wrong.append((job.rank, name, number))

        threads = [threading.Thread(target=train, args=(job, name))
                   for job in jobs for name in ('a', 'b')]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertFalse(any(thread.is_alive() for thread in threads))
        self.assertEqual(wrong, [])

    def test_a_mean_is_the_sum_in_rank_order_divided_once(self):
        jobs = self.join(3)
        random = numpy.random.RandomState(5)
        given = [random.standard_normal(70001).astype(numpy.float32) for _ in jobs]
        expected = ((given[0] + given[1]) + given[2]) / numpy.float32(3)
        found = [values.copy() for values in given]
        requests = [job.push_pull(job.declare('t', 70001), values)
                    for job, values in zip(jobs, found)]
        for request, values in zip(requests, found):
            request.wait()
            numpy.testing.assert_array_equal(values.view(numpy.uint32),
                                             expected.view(numpy.uint32))

    def test_a_sum_may_land_beside_the_gradient(self):
        jobs = self.join(2)
        gradients, results = [full(1), full(2)], [full(0), full(0)]
        requests = [job.push_pull(job.declare('t', 100), gradient, result, operation='sum')
                    for job, gradient, result in zip(jobs, gradients, results)]
        for request, gradient, result, value in zip(requests, gradients, results, (1, 2)):
            request.wait()
            self.assertEqual((set(gradient), set(result)), ({value}, {3}))

    def test_any_writable_float_buffer_will_do(self):
        job = self.join()
        buffers = [array.array('f', [1] * 6), (ctypes.c_float * 6)(*[1] * 6),
                   numpy.ones((2, 3), numpy.float32), memoryview(bytearray(24)).cast('f')]
        for number, buffer in enumerate(buffers):
            job.push_pull(job.declare(f't{number}', 6), buffer).wait()

    def test_each_rank_may_push_the_same_tensors_in_other_groups(self):
        jobs = self.join(2)
        names = [f't{i}' for i in range(6)]
        values = [{name: full(rank + i) for i, name in enumerate(names)} for rank in range(2)]
        for job in jobs:
            job.declare_all({name: 100 for name in names})
        groups = [(jobs[0], values[0], names), (jobs[1], values[1], names[3:]),
                  (jobs[1], values[1], names[:3])]
        requests = [job.push_pull_group([(name, mine[name], None) for name in some])
                    for job, mine, some in groups]
        for request in requests:
            request.wait()
        for mine in values:
            self.assertEqual([set(mine[name]) for name in names], [{i + 0.5} for i in range(6)])

    def test_a_gather_has_a_block_of_each_rank_on_ranks_that_request_it(self):
        jobs = self.join(2)
        results = [full(9, 200), None]
        requests = [job.push_pull(job.declare('t', 100), full(job.rank), result, 'gather')
                    for job, result in zip(jobs, results)]
        for request in requests:
            request.wait()
        self.assertEqual(results[0].tolist(), [0] * 100 + [1] * 100)

    def test_an_all_to_all_sends_each_rank_its_block(self):
        jobs = self.join(2)
        values = [numpy.repeat([10 * rank, 10 * rank + 1], 100).astype(numpy.float32)
                  for rank in range(2)]
        requests = [job.push_pull(job.declare('t', 100), mine, operation='all-to-all')
                    for job, mine in zip(jobs, values)]
        for request, mine, expected in zip(requests, values, ([0, 10], [1, 11])):
            request.wait()
            self.assertEqual(mine[[0, 99, 100, 199]].tolist(), numpy.repeat(expected, 2).tolist())

    def test_a_reduce_scatter_leaves_each_rank_the_sum_of_its_block(self):
        jobs = self.join(2)
        results = [full(9), full(9)]
        requests = [job.push_pull(job.declare('t', 100), numpy.repeat(full(job.rank + 1, 2) * (
            1, 10), 100).astype(numpy.float32), result, 'reduce-scatter')
                    for job, result in zip(jobs, results)]
        for request, result, expected in zip(requests, results, (3, 30)):
            request.wait()
            self.assertEqual(set(result), {expected})

    def test_a_broadcast_carries_the_values_of_its_root(self):
        jobs = self.join(3)
        values = [full(rank) for rank in range(3)]
        requests = [job.broadcast(job.declare('t', 100), mine, root=1)
                    for job, mine in zip(jobs, values)]
        for request, mine in zip(requests, values):
            request.wait()
            self.assertEqual(set(mine), {1})

    def test_a_tensor_of_no_elements_only_synchronises(self):
        jobs = self.join(2)
        first = jobs[0].push_pull(jobs[0].declare('t', 0), full(0, 0))
        with self.raises(gradpool.Timeout):
            first.wait(LEAST_MS)
        jobs[1].push_pull(jobs[1].declare('t', 0), full(0, 0)).wait()
        first.wait()

    def test_a_barrier_waits_for_the_other(self):
        jobs = self.join(2)
        self.times_out(jobs[0].barrier, 'no push from rank 1')

    def test_a_forgotten_request_keeps_its_values_alive(self):
        jobs = self.join(2)
        tensors = [job.declare('t', 100000) for job in jobs]
        jobs[0].push_pull(tensors[0], full(3, 100000))
        gc.collect()
        values = full(1, 100000)
        jobs[1].push_pull(tensors[1], values).wait()
        self.assertEqual(set(values), {2})

    def test_after_done_wait_does_not_block(self):
        jobs = self.join(2)
        requests = [jobs[0].push_pull(jobs[0].declare('t', 100), full(1))]
        self.assertFalse(requests[0].done())
        requests.append(jobs[1].push_pull(jobs[1].declare('t', 100), full(1)))
        for request in requests:
            request.wait()
            self.assertTrue(request.done())
            request.wait()


class Signals(Case):
    def test_ctrl_c_is_a_keyboard_interrupt_and_finally_runs(self):
        done = self.interrupted('import gradpool', signal.SIGINT,
                                'except KeyboardInterrupt: print("interrupted", flush=True)\n'
                                'finally: print("finally", flush=True)')
        self.assertEqual(done, (0, 'ready\ninterrupted\nfinally\n'))

    def test_a_handler_that_was_set_before_the_import_stays(self):
        done = self.interrupted('import signal\n'
                                'signal.signal(signal.SIGTERM, lambda *_: sys.exit("saved"))\n'
                                'import gradpool', signal.SIGTERM,
                                'except SystemExit as end: print(end, flush=True)')
        self.assertEqual(done, (0, 'ready\nsaved\n'))

    def test_an_import_changes_neither_signals_nor_environment(self):
        code = ('import os\ndef seen(): return dict(os.environ), [line for line in '
                'open("/proc/self/status") if line[:6] in ("SigBlk", "SigIgn", "SigCgt")]\n'
                'before = seen()\nimport gradpool\nprint(before == seen())')
        self.assertEqual(Surroundings.python(code).stdout, 'True\n')

    def test_an_import_loads_no_libfabric(self):
        code = ('import gradpool\nprint([name in open("/proc/self/maps").read() '
                'for name in ("libgradpool", "libfabric")])')
        self.assertEqual(Surroundings.python(code).stdout, '[True, False]\n')

    def test_the_service_keeps_default_handlers_of_four_signals(self):
        for pid in (python_case.service.serve.pid, *python_case.service.pids()):
            with open(f'/proc/{pid}/status', encoding='ascii') as status:
                caught = next(line for line in status if line.startswith('SigCgt')).split()[1]
            for number in signal.SIGINT, signal.SIGTERM, signal.SIGABRT, signal.SIGILL:
                self.assertFalse(int(caught, 16) >> number - 1 & 1, f'{pid} {number.name}')

    @staticmethod
    def interrupted(begin, number, handlers):
        """Runs a script that receives a signal while it waits. Returns (exit status, output)."""
        code = f'import sys, time\n{begin}\ntry:\n print("ready", flush=True)\n ' \
               f'time.sleep({ranks.RANK_TIMEOUT_S})\n{handlers}\n'
        with subprocess.Popen([sys.executable, '-c', code], stdout=subprocess.PIPE,
                              text=True) as child:
            output = child.stdout.readline()
            child.send_signal(number)
            output += harness.finish(child, ranks.RANK_TIMEOUT_S)[0]
        return child.returncode, output

    def test_a_signal_handler_runs_while_a_result_is_waited_for(self):
        class Interrupted(Exception):
            pass

        def interrupt(number, frame):
            raise Interrupted

        job = self.join(2)[0]
        request = job.push_pull(job.declare('t', 4), numpy.zeros(4, numpy.float32))
        before = signal.signal(signal.SIGALRM, interrupt)
        watch = progress.Stopwatch()
        try:
            with self.assertRaises(Interrupted):
                signal.setitimer(signal.ITIMER_REAL, 0.1)
                request.wait(30000)
        finally:
            signal.signal(signal.SIGALRM, before)
        self.assertLess(watch.seconds(), 10)
        # the first error names the limit of the interrupted call
        self.times_out(request.wait, "'t' round 1", 'no push from rank 1 after')
        self.times_out(request.wait, "'t' round 1", 'after 300 ms')


class Dtypes(Case):
    def test_each_dtype_of_numpy_is_summed(self):
        for dtype in ('float32', 'float64', 'float16', 'int32', 'int64'):
            with self.subTest(dtype), gradpool.connect() as client:
                values = [numpy.arange(-50, 950).astype(dtype) * (rank + 1) for rank in range(2)]
                expected = values[0] + values[1]
                jobs = [client.join(dtype, rank, 2) for rank in range(2)]
                requests = [job.push_pull(job.declare('t', 1000, dtype), of_rank, operation='sum')
                            for job, of_rank in zip(jobs, values)]
                for request, of_rank in zip(requests, values):
                    request.wait()
                    numpy.testing.assert_array_equal(of_rank, expected)

    def test_halves_of_torch_are_summed_in_float32_and_rounded_once(self):
        import torch
        for dtype, name in ((torch.float16, 'float16'), (torch.bfloat16, 'bfloat16')):
            with self.subTest(name), gradpool.connect() as client:
                torch.manual_seed(3)
                values = [torch.randn(5000).to(dtype) for _ in range(10)]
                expected = torch.zeros(5000)
                for of_rank in values:
                    expected += of_rank.float()
                jobs = [client.join(name, rank, 10) for rank in range(10)]
                requests = [job.push_pull(job.declare('t', 5000, name), of_rank)
                            for job, of_rank in zip(jobs, values)]
                for request, of_rank in zip(requests, values):
                    request.wait()
                    self.assertTrue(torch.equal(of_rank, (expected / 10).to(dtype)))

    def test_float32_may_travel_as_halves(self):
        import torch
        jobs = self.join(3)
        for dtype, wire in (torch.float16, 'float16'), (torch.bfloat16, 'bfloat16'):
            torch.manual_seed(4)
            values = [torch.randn(5000) for _ in jobs]
            rounded = [of_rank.to(dtype).float() for of_rank in values]
            expected = ((rounded[0] + rounded[1] + rounded[2]) / 3).to(dtype).float()
            requests = [job.push_pull(job.declare(wire, 5000, wire=wire), of_rank)
                        for job, of_rank in zip(jobs, values)]
            for request, of_rank in zip(requests, values):
                request.wait()
                self.assertTrue(torch.equal(of_rank, expected))

    def test_squares_and_losses_are_shown_with_the_job(self):
        jobs = self.join(2)
        values = [full(3), full(5)]
        tensors = [job.declare('t', 100, measures=True) for job in jobs]
        for _ in range(2):
            for job, loss in zip(jobs, (0.5, 1.5)):
                job.tell_loss(loss)
            requests = [job.push_pull(tensor, value.copy())
                        for job, tensor, value in zip(jobs, tensors, values)]
            for request in requests:
                request.wait()
        wanted = {'round': 2, 'inputs': 2, 'input_squares': 3400.0, 'result_squares': 1600.0,
                  'loss': 1.0}
        harness.until(
            lambda: python_case.service.job(jobs[0].name).get('measured') == wanted,
            f'the service tells {wanted}')

    def test_a_wire_dtype_that_is_not_narrower_is_refused(self):
        job = self.join()
        for dtype, wire in ('float16', 'float32'), ('float64', 'float32'), ('float32', 'int32'):
            with self.raises(gradpool.Mismatch, "'t'", 'cannot travel as'):
                job.declare('t', 3, dtype, wire=wire)
        job.declare('t', 3, wire='float16')
        with self.raises(gradpool.GradpoolError, 'travel as f16', 'bf16'):
            job.declare('t', 3, wire='bfloat16')

    def test_a_mean_of_integers_is_refused(self):
        job = self.join()
        with self.raises(gradpool.Mismatch, "'t'", 'i32', 'mean'):
            job.push_pull(job.declare('t', 3, 'int32'), numpy.zeros(3, numpy.int32))

    def test_an_unknown_dtype_is_refused(self):
        with self.raises(gradpool.Mismatch, "'float8'", 'bfloat16'):
            self.join().declare('t', 4, 'float8')

    def test_ranks_that_differ_in_dtype_get_an_error(self):
        jobs = self.join(2)
        jobs[0].declare('t', 4)
        with self.raises(gradpool.Mismatch, 'f32', 'f64'):
            jobs[1].declare('t', 4, 'float64')


class Refusals(Case):
    def test_another_dtype_is_refused_by_name(self):
        job = self.join()
        tensor = job.declare('fc.weight', 4)
        with self.raises(gradpool.Mismatch, 'fc.weight', "'d'", 'float32'):
            job.push_pull(tensor, numpy.zeros(4))

    def test_another_size_is_refused_with_both_sizes(self):
        job = self.join()
        with self.raises(gradpool.Mismatch, '5 elements', 'expected 4'):
            job.push_pull(job.declare('t', 4), full(0, 5))

    def test_a_result_of_another_size_is_refused(self):
        job = self.join()
        with self.raises(gradpool.Mismatch, "result of 't'"):
            job.push_pull(job.declare('t', 4), full(0, 4), full(0, 3))

    def test_strided_values_are_refused(self):
        job = self.join()
        with self.raises(gradpool.Mismatch, 'not contiguous'):
            job.push_pull(job.declare('t', 4), full(0, 8)[::2])

    def test_read_only_values_are_refused(self):
        job = self.join()
        with self.raises(gradpool.Mismatch, 'read-only'):
            job.push_pull(job.declare('t', 1), memoryview(bytes(4)).cast('f'))

    def test_an_object_without_a_buffer_is_refused(self):
        job = self.join()
        with self.raises(gradpool.Mismatch, 'a list'):
            job.push_pull(job.declare('t', 1), [1.0])

    def test_a_name_that_was_not_declared_is_refused(self):
        job = self.join()
        with self.raises(gradpool.Mismatch, "'u'", 'not been declared'):
            job.push_pull('u', full(0))

    def test_an_unknown_operation_is_refused(self):
        job = self.join()
        with self.raises(gradpool.Mismatch, 'median', 'mean'):
            job.push_pull(job.declare('t', 100), full(0), operation='median')

    def test_one_name_declared_with_two_sizes_is_refused(self):
        job = self.join()
        job.declare('t', 100)
        with self.raises(gradpool.Mismatch, 't', '100', '101'):
            job.declare('t', 101)

    def test_a_name_declared_again_is_the_same_tensor(self):
        job = self.join()
        self.assertEqual(job.declare('t', 100), job.declare('t', 100))

    def test_a_tensor_can_be_forgotten_and_declared_anew(self):
        job = self.join()
        job.undeclare(job.declare('t', 100))
        job.push_pull(job.declare('t', 50), full(1, 50)).wait()

    def test_a_tensor_with_an_open_round_cannot_be_forgotten(self):
        job = self.join(2)[0]
        tensor = job.declare('t', 100)
        request = job.push_pull(tensor, full(1))
        with self.assertRaises(gradpool.GradpoolError) as raised:
            job.undeclare(tensor)
        self.assertEqual(raised.exception.errno, errno.EBUSY)
        self.assertFalse(request.done())

    def test_ranks_that_disagree_about_a_size_all_get_an_error(self):
        jobs = self.join(2)
        request = jobs[0].push_pull(jobs[0].declare('t', 100), full(1))
        with self.raises(gradpool.Mismatch, 'rank 0', 'rank 1', '100', '101'):
            jobs[1].declare('t', 101)
            jobs[1].push_pull('t', full(1, 101)).wait()
        with self.raises(gradpool.Mismatch, 'rank 0', 'rank 1', '100', '101'):
            request.wait()

    def test_a_rank_that_is_taken_is_refused(self):
        self.join(2)
        with self.raises(gradpool.Mismatch, '0'):
            self.client.join(self.id().rsplit('.', 1)[-1], 0, 2)

    def test_another_number_of_workers_is_refused(self):
        self.join(2)
        with self.raises(gradpool.Mismatch, '2', '3'):
            self.client.join(self.id().rsplit('.', 1)[-1], 2, 3)

    def test_a_job_needs_a_name(self):
        client = gradpool.connect()
        self.addCleanup(client.close)
        with unittest.mock.patch.dict(os.environ, {'RANK': '0', 'WORLD_SIZE': '1'}):
            os.environ.pop('GRADPOOL_JOB', None)
            with self.raises(gradpool.Mismatch, 'GRADPOOL_JOB'):
                client.join()


class Failures(Case):
    def test_a_missing_push_is_named_at_the_deadline_and_may_still_come(self):
        jobs = self.join(2)
        tensors = [job.declare('fc.weight', 100) for job in jobs]
        values = full(1)
        request = jobs[0].push_pull(tensors[0], values)
        self.times_out(request.wait, 'fc.weight', 'no push from rank 1')
        jobs[1].push_pull(tensors[1], full(3)).wait()
        request.wait()
        self.assertEqual(set(values), {2})

    def test_a_killed_worker_is_named_by_the_others(self):
        processes = ranks.start_ranks('rank_pushes_until_killed', 2)
        self.assertEqual(processes[1].wait(ranks.RANK_TIMEOUT_S), -signal.SIGKILL)
        text, = ranks.finish_ranks(processes[:1])
        processes[1].communicate()
        self.assertIn('rank 1', text)

    def test_an_error_of_a_request_is_raised_again(self):
        jobs = self.join(2)
        request = jobs[0].push_pull(jobs[0].declare('t', 100), full(1))
        jobs[0].leave()
        for _ in range(2):
            with self.assertRaises(gradpool.GradpoolError) as raised:
                request.wait()
            self.assertEqual(raised.exception.errno, errno.ECANCELED)

    def test_a_job_that_was_left_raises_that_reason(self):
        job = self.join()
        job.leave()
        with self.raises(gradpool.GradpoolError, 'closed'):
            job.declare('t', 1)

    def test_a_closed_client_leaves_its_jobs(self):
        job = self.join()
        self.client.close()
        with self.raises(gradpool.GradpoolError, 'closed'):
            job.barrier()

    def test_a_forked_child_gets_a_clear_error_and_its_end_changes_nothing(self):
        job = self.join()
        tensor = job.declare('t', 100)
        child = os.fork()
        if child == 0:
            try:
                job.push_pull(tensor, full(1))
            except gradpool.Forked:
                gc.collect()
                del job
                os._exit(7)
            os._exit(1)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 7)
        job.push_pull(tensor, full(1)).wait()

    def test_an_endpoint_without_a_service_is_an_error_that_names_the_endpoint(self):
        with self.raises(gradpool.GradpoolError, '127.0.0.1:1'):
            gradpool.connect('gradpool://127.0.0.1:1')

    def test_an_endpoint_that_makes_no_sense_is_a_mismatch(self):
        with self.raises(gradpool.Mismatch, 'http://'):
            gradpool.connect('http://127.0.0.1')

    def test_an_unknown_transport_is_a_mismatch(self):
        with self.raises(gradpool.Mismatch, 'pigeon'):
            gradpool.connect(transport='pigeon')


class Surroundings(Case):
    launchers = {'GRADPOOL_RANK': 'GRADPOOL_SIZE', 'RANK': 'WORLD_SIZE',
                 'OMPI_COMM_WORLD_RANK': 'OMPI_COMM_WORLD_SIZE', 'PMI_RANK': 'PMI_SIZE',
                 'SLURM_PROCID': 'SLURM_STEP_NUM_TASKS'}

    def launched(self, **variables):
        """Returns this environment with these variables, but without those of launchers."""
        kept = {name: value for name, value in os.environ.items()
                if name not in {*self.launchers, *self.launchers.values(), 'GRADPOOL_JOB'}}
        return unittest.mock.patch.dict(os.environ, {**kept, **variables}, clear=True)

    def test_rank_and_size_come_from_any_launcher(self):
        for rank, size in self.launchers.items():
            with self.launched(**{rank: '3', size: '8', 'GRADPOOL_JOB': 'j'}):
                self.assertEqual(gradpool.job_from_environment(), ('j', 3, 8))

    def test_no_launcher_is_an_error_that_lists_the_variables(self):
        with self.launched(), self.raises(gradpool.GradpoolError, *self.launchers):
            gradpool.job_from_environment()

    def test_importing_gradpool_imports_neither_torch_nor_numpy(self):
        code = 'import sys, gradpool; print({"torch", "numpy"} & set(sys.modules))'
        self.assertEqual(self.python(code).stdout, 'set()\n')

    def test_a_missing_library_is_an_error_with_the_searched_places(self):
        done = self.python('import gradpool', GRADPOOL_LIBRARY='/nowhere/libgradpool.so')
        self.assertIn('/nowhere/libgradpool.so', done.stderr)
        self.assertIn('set GRADPOOL_LIBRARY', done.stderr)

    def test_a_library_of_another_version_is_an_error_with_the_missing_functions(self):
        done = self.python('import gradpool', GRADPOOL_LIBRARY='libc.so.6')
        self.assertIn('undefined symbol: gp_version', done.stderr)
        self.assertIn('set GRADPOOL_LIBRARY', done.stderr)

    def test_a_script_that_forgets_to_close_ends_well(self):
        done = self.python('import gradpool; j = gradpool.connect().join("ends", 0, 1);'
                           't = j.declare("t", 10)')
        self.assertEqual((done.returncode, done.stderr), (0, ''))

    def test_an_unknown_variable_is_one_line_with_the_nearest_known_name(self):
        done = self.python('import gradpool; [gradpool.connect().close() for _ in range(2)]',
                           GRADPOOL_TRANSPROT='tcp')
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertIn('GRADPOOL_TRANSPROT; did you mean GRADPOOL_TRANSPORT?', done.stderr)

    @unittest.skipUnless(os.geteuid() == 0, 'becoming another user needs root')
    def test_a_worker_of_another_user_logs_why_it_shares_no_memory(self):
        done = self.python('import os, numpy, gradpool; os.setgroups([]); os.setuid(65534);'
                           'j = gradpool.connect().join("other-user", 0, 1);'
                           'v = numpy.ones(9, "f"); j.push_pull(j.declare("t", 9), v).wait()')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertIn('shares no memory', done.stderr)
        self.assertIn('--allow-uid does not list this user', done.stderr)

    @staticmethod
    def python(code, **environment):
        return subprocess.run([sys.executable, '-c', code], capture_output=True, text=True,
                              check=False, env={**os.environ, **environment})


if __name__ == '__main__':
    ranks.main(globals())
