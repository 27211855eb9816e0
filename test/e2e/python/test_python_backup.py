"""Tests backup workers in the package gradpool, without torch, with a real service: the rule of a
job, and ends of rounds."""
import collections
import concurrent.futures
import errno
import os
import signal
import time
import unittest.mock

import numpy

import harness
import ranks
import gradpool
import python_case
from python_case import Case, full, setUpModule, tearDownModule  # noqa: F401

WORKERS = 3


class Backup(Case):
    def join_all(self, **options):
        name = self.id().rsplit('.', 1)[-1]
        client = gradpool.connect()
        self.addCleanup(client.close)
        return [client.join(name, rank, WORKERS, durability='none', **options)
                for rank in range(WORKERS)]

    def end(self, jobs, ranks_of_round):
        """Ends a round on some ranks at the same time. Returns their ends."""
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            return list(pool.map(lambda rank: jobs[rank].end_round(loss=0.5), ranks_of_round))


class Rounds(Backup):
    def begin(self):
        """Joins all ranks and sets the parameters to those of rank 0. Returns jobs, tensors and
        parameters by rank."""
        jobs = self.join_all(backup='static:2')
        tensors = [job.declare('t', 100, rule='sgd') for job in jobs]
        values = [full(rank + 1) for rank in range(WORKERS)]
        for request in [job.broadcast(tensor, mine)
                        for job, tensor, mine in zip(jobs, tensors, values)]:
            request.wait()
        return jobs, tensors, values

    def test_a_late_gradient_is_dropped_and_parameters_stay_equal(self):
        jobs, tensors, values = self.begin()
        requests = [jobs[rank].update(tensors[rank], full(rank + 1), values[rank], lr=1.0)
                    for rank in range(WORKERS)]
        self.assertEqual(self.end(jobs, range(2)), [(1, 0, 2, WORKERS, False, 1, False)] * 2)
        self.assertEqual(self.end(jobs, [2]), [(1, 1, 2, WORKERS, True, 0, False)])
        for request, mine in zip(requests, values):
            request.wait()
            self.assertEqual(mine.tolist(), full(1 - 1.5).tolist())

    def test_a_second_thread_that_ends_the_round_is_refused(self):
        jobs, tensors, values = self.begin()
        request = jobs[0].update(tensors[0], full(1), values[0], lr=1.0)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            ends = [pool.submit(jobs[0].end_round) for _ in range(2)]
            first, = concurrent.futures.wait(ends, return_when='FIRST_COMPLETED').done
            with self.raises(gradpool.GradpoolError, 'another thread ends a round of rank 0'):
                first.result()
            other = jobs[1].update(tensors[1], full(1), values[1], lr=1.0)
            jobs[1].end_round()
            ends.remove(first)
            self.assertEqual(ends[0].result().number, 1)
        for one in request, other:
            one.wait()

    def test_a_job_refuses_rounds_after_an_interrupted_end(self):
        jobs, tensors, values = self.begin()
        request = jobs[0].update(tensors[0], full(1), values[0], lr=1.0)
        with unittest.mock.patch.object(type(jobs[0]), '_wait', side_effect=KeyboardInterrupt):
            with self.assertRaises(KeyboardInterrupt):
                jobs[0].end_round()
        for call in jobs[0].end_round, jobs[0].next_round:
            with self.raises(gradpool.GradpoolError, 'it is unknown which results'):
                call()
        del request

    def test_a_rank_sees_that_its_round_is_closed(self):
        jobs, tensors, values = self.begin()
        for number in 1, 2:
            requests = [jobs[rank].update(tensors[rank], full(0), values[rank], lr=1.0)
                        for rank in range(WORKERS)]
            self.assertEqual([end.number for end in self.end(jobs, range(2))], [number] * 2)
            if number == 2:
                harness.until(lambda: jobs[2].passed() == 2, 'rank 2 sees that round 2 is closed')
            self.assertTrue(self.end(jobs, [2])[0].is_dropped)
            self.assertEqual(jobs[2].passed(), 0)
            for request in requests:
                request.wait()

    def await_close(self, job, number):
        harness.until(lambda: job.passed() == number, f'round {number} is closed for the rank')

    def test_a_rank_without_a_gradient_gets_the_newest_parameters(self):
        jobs, tensors, values = self.begin()
        self.step(jobs, tensors, values, range(2))
        self.step(jobs, tensors, values, [2])
        self.assertTrue(jobs[2].skip_round().goes_on)       # round 2 is open
        for number in 2, 3:
            self.step(jobs, tensors, values, range(2))
            self.await_close(jobs[2], number)
        self.assertEqual(jobs[2].skip_round(), (3, 2, 2, WORKERS, True, 0, False))
        self.assertEqual(values[2].tolist(), values[0].tolist())
        self.assertEqual(jobs[2].passed(), 0)
        self.assertEqual(self.step(jobs, tensors, values, [2, 0]), 4)
        self.assertEqual(values[2].tolist(), values[0].tolist())

    def test_a_round_is_not_skipped_before_the_first_or_with_a_push(self):
        jobs, tensors, values = self.begin()
        self.step(jobs, tensors, values, range(2))
        with self.raises(gradpool.GradpoolError, 'rank 2 has ended no round'):
            jobs[2].skip_round()
        self.step(jobs, tensors, values, [2])
        request = jobs[2].update(tensors[2], full(1), values[2], lr=1.0)
        self.step(jobs, tensors, values, range(2))
        self.await_close(jobs[2], 2)
        with self.raises(gradpool.GradpoolError, "'t' has a gradient in round 2 of job"):
            jobs[2].skip_round()
        self.assertTrue(self.end(jobs, [2])[0].is_dropped)
        self.step(jobs, tensors, values, range(2))
        self.await_close(jobs[2], 3)
        with self.raises(gradpool.GradpoolError,
                         ' has a request that nobody waited for; wait for the request'):
            jobs[2].skip_round()
        request.wait()
        self.assertEqual(jobs[2].skip_round().number, 3)

    def step(self, jobs, tensors, values, ranks_of_round):
        """Does a round on some ranks at the same time. Returns its number."""
        requests = [jobs[rank].update(tensors[rank], full(rank + 1), values[rank], lr=1.0)
                    for rank in ranks_of_round]
        ends = self.end(jobs, ranks_of_round)
        for request in requests:
            request.wait()
        return max(end.number for end in ends)

    def test_a_rank_that_stops_in_the_middle_of_a_round_delays_no_round_for_long(self):
        """Stops rank 2 at any point, even while the leader lane sleeps and waits for rank 2 alone.
        """
        jobs, tensors, values = self.begin()
        parameters = {}     # by the number of the round

        def go_on():
            number = self.step(jobs, tensors, values, range(2))
            parameters[number] = values[0].tolist()
        go_on()
        self.step(jobs, tensors, values, [2])
        for _ in range(10):
            go_on()
            request = jobs[2].update(tensors[2], full(3), values[2], lr=1.0)
            try:
                end = jobs[2].end_round(timeout_ms=1)
            except gradpool.Timeout:
                known = max(parameters)
                for _ in range(4):
                    go_on()
                # the result is the newest round, or the one that rank 2 was receiving when it
                # stopped
                end, = self.end(jobs, [2])
                self.assertIn(end.number, {known, max(parameters)})
            request.wait()
            self.assertEqual(values[2].tolist(), parameters[end.number])

    def test_a_wait_before_the_end_of_the_round_is_refused(self):
        jobs, tensors, values = self.begin()
        request = jobs[0].update(tensors[0], full(0), values[0], lr=1.0)
        with self.raises(gradpool.GradpoolError, 'round 1 of the job is not ended'):
            request.wait()

    def test_wrong_rules_are_refused(self):
        for rule, words in ('most', "backup rule 'most', expected static:K"), \
                ('static', "as in 'static:12'"), ('auto:3', 'to no other rule'), \
                ('static:x', "as in 'static:12'"), (12, 'backup rule 12'):
            with self.raises(gradpool.Mismatch, words):
                gradpool.Backup(rule)
        with self.raises(gradpool.Mismatch, "rate is 'half', expected one of fixed"):
            gradpool.Backup('static:2', rate='half')
        with self.raises(gradpool.Mismatch, 'least is -1'):
            gradpool.Backup('static:2', least=-1)
        with self.raises(gradpool.Mismatch, "absence is 'long', expected a whole number"):
            gradpool.Backup('auto', absence='long')
        self.assertEqual(repr(gradpool.Backup('static:2', least=1)),
                         "Backup('static:2', least=1, absence=None, lag=None, "
                         "gradients=1, rate='fixed', stragglers='wait', again=False)")

    def test_a_rule_that_the_service_lacks_is_refused(self):
        with self.assertRaises(gradpool.GradpoolError) as caught:
            self.join_all(backup='auto', workers_max=WORKERS + 1)
        self.assertEqual(caught.exception.errno, errno.EOPNOTSUPP)
        self.assertIn("does not serve backup rule 'auto' in a job whose workers come and go (set "
                      'on_worker_loss to GP_FAIL and workers_max to 0)', str(caught.exception))

    def test_a_job_without_backup_workers_has_no_ends_of_rounds(self):
        job = self.join_all()[0]
        with self.raises(gradpool.Mismatch, 'has no backup workers'):
            job.end_round()
        self.assertEqual(job.passed(), 0)


LONG = (5 << 20) // 4       # elements of two pieces


class Sums(Backup):
    """Tests rounds of tensors without update rules. Workers make the steps, and every worker
    receives every mean."""

    def begin_sums(self, elements=100, **options):
        jobs = self.join_all(**{'backup': 'static:2', **options})
        return jobs, [job.declare('t', elements) for job in jobs]

    def push(self, jobs, tensors, ranks_of_round, number):
        """Ends a round on some ranks. Returns ends and means by rank."""
        means = [full(0) for _ in jobs]
        requests = [jobs[rank].push_pull(tensors[rank], full(10 * number + rank), means[rank])
                    for rank in ranks_of_round]
        ends = self.end(jobs, ranks_of_round)
        for request in requests:
            request.wait()
        return ends, means

    def test_a_late_rank_gets_the_mean_of_every_round_that_it_missed(self):
        jobs, tensors = self.begin_sums()
        for number in 1, 2, 3:
            ends, means = self.push(jobs, tensors, range(2), number)
            self.assertEqual(ends, [(number, 0, 2, WORKERS, False, 1, False)] * 2)
            self.assertEqual(means[1].tolist(), full(10 * number + 0.5).tolist())
            self.assertFalse(jobs[0].next_round())
        ends, means = self.push(jobs, tensors, [2], 1)
        self.assertEqual((ends[0].number, ends[0].missed, ends[0].is_dropped), (1, 1, True))
        self.assertEqual(means[2].tolist(), full(10.5).tolist())
        for number in 2, 3:
            self.assertTrue(jobs[2].next_round())
            self.assertEqual(means[2].tolist(), full(10 * number + 0.5).tolist())
        self.assertFalse(jobs[2].next_round())
        ends, means = self.push(jobs, tensors, [0, 2], 4)
        self.assertEqual(ends, [(4, 0, 2, WORKERS, False, 1, False)] * 2)
        self.assertEqual(means[2].tolist(), full(41).tolist())

    def fall_behind(self, elements):
        """Returns jobs, tensors and the result memory of rank 2, which contains the mean of the
        first of two rounds."""
        jobs, tensors = self.begin_sums(elements)
        mean, results = full(0, elements), full(0, elements)
        for number in 1, 2:
            requests = [jobs[rank].push_pull(tensors[rank], full(number, elements), results)
                        for rank in range(2)]
            self.end(jobs, range(2))
            for request in requests:
                request.wait()
        request = jobs[2].push_pull(tensors[2], full(0, elements), mean)
        self.end(jobs, [2])
        request.wait()
        self.assertTrue((mean == 1).all())
        return jobs, tensors, mean

    def is_undeclared(self, job, tensor):
        try:
            job.undeclare(tensor)
        except gradpool.GradpoolError as error:
            self.assertEqual(error.errno, errno.EBUSY)
            return False
        return True

    def test_a_tensor_stays_declared_until_a_missed_mean_is_copied(self):
        jobs, tensors, mean = self.fall_behind(LONG)
        pids = python_case.service.pids()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            with self.raises(gradpool.Timeout, 'a lane has not sent the result'):
                jobs[2].next_round(timeout_ms=100)
            with self.raises(gradpool.GradpoolError, "tensor 't' has an open request"):
                jobs[2].undeclare(tensors[2])
            with self.raises(gradpool.GradpoolError, 'rank 2 lacks the result of round 2'):
                jobs[2].skip_round(timeout_ms=100)
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            taken = pool.submit(jobs[2].next_round)
            harness.until(lambda: self.is_undeclared(jobs[2], tensors[2]),
                          'rank 2 has undeclared the tensor')
            self.assertTrue((mean == 2).all())      # no value of the second round has been written
            self.assertTrue(taken.result())

    def test_rounds_wait_for_a_rank_that_is_too_far_behind(self):
        jobs, tensors = self.begin_sums(backup=gradpool.Backup('static:2', lag=1))
        self.push(jobs, tensors, range(2), 1)
        means = [full(0) for _ in jobs]
        requests = [jobs[rank].push_pull(tensors[rank], full(rank), means[rank])
                    for rank in range(2)]
        for rank in range(2):
            with self.raises(gradpool.Timeout, 'round 2'):
                jobs[rank].end_round(timeout_ms=100)
        self.assertTrue(self.push(jobs, tensors, [2], 1)[0][0].is_dropped)
        self.assertFalse(jobs[2].next_round())
        self.assertEqual([end.number for end in self.end(jobs, range(2))], [2, 2])
        for request in requests:
            request.wait()

    def train(self, rank, job, tensors, rounds):
        """Makes a step with every mean. Returns the sum of the parameters after each round, and
        how often the gradient was dropped."""
        parameters = [numpy.zeros(tensor.elements, numpy.float32) for tensor in tensors]
        means = [numpy.zeros_like(values) for values in parameters]
        sums, dropped = {}, 0

        def step(number):
            for values, mean in zip(parameters, means):
                values -= mean
            sums[number] = [float(values.sum(dtype=numpy.float64)) for values in parameters]
        while len(sums) < rounds:
            time.sleep(0.01 if rank == 2 else 0)    # the work of a slow rank
            gradients = [full((rank + 1) / (len(sums) + 1), tensor.elements) for tensor in tensors]
            requests = [job.push_pull(*items) for items in zip(tensors, gradients, means)]
            end = job.end_round()
            for request in requests:
                request.wait()
            dropped += end.is_dropped
            step(end.number)
            while job.next_round():
                step(len(sums) + 1)
        return sums, dropped

    def no_rank_diverges(self, transport):
        with unittest.mock.patch.dict(os.environ, GRADPOOL_TRANSPORT=transport):
            jobs, tensors = self.begin_sums(LONG)
        both = [[tensor, job.declare('short', 10)] for job, tensor in zip(jobs, tensors)]
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            trained = list(pool.map(self.train, range(WORKERS), jobs, both, [30] * WORKERS))
        seen = collections.defaultdict(set)
        for sums, _ in trained:
            self.assertEqual(sorted(sums), list(range(1, len(sums) + 1)))
            for number, values in sums.items():
                seen[number].add(tuple(values))
        self.assertEqual({len(values) for values in seen.values()}, {1})
        self.assertGreater(sum(dropped for _, dropped in trained), 0)

    def test_no_rank_diverges_over_shared_memory(self):
        self.no_rank_diverges('shm')

    def test_no_rank_diverges_over_tcp(self):
        self.no_rank_diverges('tcp')

    def test_a_rank_without_a_gradient_gets_every_mean(self):
        jobs, tensors = self.begin_sums()
        self.push(jobs, tensors, range(2), 1)
        means = full(0)
        request = jobs[2].push_pull(tensors[2], full(1), means)
        self.end(jobs, [2])
        request.wait()
        for number in 2, 3:
            self.push(jobs, tensors, range(2), number)
        harness.until(lambda: jobs[2].passed() == 3, 'rank 2 sees that round 3 is closed')
        end, found = jobs[2].skip_round(), []
        found.append(means.tolist())
        self.assertEqual((end.number, end.missed, end.is_dropped), (2, 1, True))
        while jobs[2].next_round():
            found.append(means.tolist())
        self.assertEqual(found, [full(10 * number + 0.5).tolist() for number in (2, 3)])
        self.push(jobs, tensors, [0, 2], 4)

    def test_a_push_before_the_missed_means_is_refused(self):
        jobs, tensors = self.begin_sums()
        for number in 1, 2:
            self.push(jobs, tensors, range(2), number)
        means = full(0)
        request = jobs[2].push_pull(tensors[2], full(1), means)
        self.end(jobs, [2])
        with self.raises(gradpool.GradpoolError, 'wait for the request, then call again'):
            jobs[2].next_round()
        request.wait()
        with self.raises(gradpool.GradpoolError, 'lacks the results of rounds 2 to 2 of the job'):
            jobs[2].push_pull(tensors[2], full(1), means)
        with self.raises(gradpool.GradpoolError, 'until it returns 0, then push and end the round'):
            jobs[2].end_round()
        with self.raises(gradpool.GradpoolError, 'is not ended on rank 2; call gp_round_end(), and '
                         'gp_round_next() until it returns 0, then declare'):
            jobs[2].declare('new', 100)
        self.assertTrue(jobs[2].next_round())
        self.assertEqual(means.tolist(), full(20.5).tolist())
        request = jobs[2].push_pull(tensors[2], full(1), means)
        with self.assertRaises(gradpool.Timeout):
            jobs[2].end_round(timeout_ms=1)
        with self.raises(gradpool.GradpoolError, 'round 3 is not ended; call gp_round_end() first'):
            jobs[2].next_round()

    def test_tensors_with_and_without_a_rule_are_not_mixed(self):
        jobs, _ = self.begin_sums()
        with self.raises(gradpool.Mismatch, 'either tensors with update rules or tensors without'):
            jobs[0].declare('parameters', 100, rule='sgd')

    def test_operations_with_blocks_are_refused(self):
        jobs, tensors = self.begin_sums()
        with self.raises(gradpool.GradpoolError, 'reduces and broadcasts only'):
            jobs[0].push_pull(tensors[0], full(1), None, 'gather')


if __name__ == '__main__':
    ranks.main(globals())
