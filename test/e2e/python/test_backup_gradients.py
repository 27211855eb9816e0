"""Several gradients of one rank in a round, tested against a real service: 4 ranks, each in a
thread, with gradients made by the tests. The mean of each round must have the bits that one process
computes from the gradients that the ranks report as counted, by rank, then by number."""
import concurrent.futures
import errno
import os
import random
import signal
import sys
import threading
import time

import numpy

import gradpool
import harness
import python_case
import ranks
from python_case import Case, setUpModule, tearDownModule  # noqa: F401

WORKERS, SLOW = 4, 3
ATTEMPTS = 6
ELEMENTS = 70001        # several chunks
FAST_S, SLOW_S = 0.004, 0.04    # longest times of a gradient
SEEDS = 11, 12, 13


def gradient(rank, body):
    return numpy.random.default_rng([rank, body]).standard_normal(ELEMENTS, numpy.float32)


class End:
    """The last round, for all ranks. A rank asks before each gradient, so at the time of choose()
    no rank has begun a round after `rounds + 1`."""

    def __init__(self):
        self.lock, self.last = threading.Lock(), 0      # 0: not known yet

    def allows(self, rounds):
        with self.lock:
            return not self.last or rounds < self.last

    def choose(self, each, more):
        with self.lock:
            self.last = max(one.number for one in each) + more


class Worker:
    """One rank. Without update rules it receives the mean of every round."""

    def __init__(self, test, name, rank, seed, before=lambda worker: None, **options):
        client = gradpool.connect(transport=options.pop('transport', None))
        test.addCleanup(client.close)
        self.rank, self.before = rank, before
        self.job = client.join(name, rank, WORKERS, durability='none', **options)
        self.random = random.Random(f'{seed} {rank}')
        self.number = self.requests = self.lost = 0     # lost: gradients in flight at a close
        self.goes_on = False
        self.means, self.counted, self.own = {}, {}, {}     # key: number of the round

    def run(self, end):
        tensor, mean = self.job.declare('t', ELEMENTS), numpy.zeros(ELEMENTS, numpy.float32)
        body, given = 0, []
        while end.allows(self.number):
            self.before(self)
            time.sleep(self.random.random() * (SLOW_S if self.rank == SLOW else FAST_S))
            request = self.job.push_pull(tensor, gradient(self.rank, body), mean)
            given.append(body)
            body += 1
            ended = self.job.end_round()
            self.goes_on = ended.goes_on
            if ended.goes_on:
                self.requests += 1
                continue
            request.wait()
            self.counted[ended.number] = given[:ended.own]
            self.own[ended.number] = ended.counted if ended.own else 0
            self.lost += len(given) - ended.own if ended.own else 0
            given = []
            self.note(mean)
            while self.job.next_round():
                self.note(mean)

    def note(self, mean):
        self.number += 1
        self.means[self.number] = mean.tobytes()


class Gradients(Case):
    def begin(self, name, backup, seed, **options):
        return [Worker(self, name, rank, seed, backup=backup, **options)
                for rank in range(WORKERS)]

    def check(self, each):
        """Checks that each round has the same bits on all ranks, and those of one process."""
        for number in range(1, max(one.number for one in each) + 1):
            counted = [(one.rank, body) for one in each for body in one.counted.get(number, ())]
            told = {one.own[number] for one in each if one.own.get(number)}
            self.assertEqual(told, {len(counted)}, number)
            total = gradient(*counted[0])
            for rank, body in counted[1:]:
                total = total + gradient(rank, body)
            wanted = (total / numpy.float32(len(counted))).tobytes()
            for one in each:
                if number in one.means:
                    self.assertEqual(one.means[number], wanted, (number, one.rank, counted))

    def train(self, name, backup, seed, rounds, **options):
        print(f'# {name}: seed {seed}', flush=True)
        each, end = self.begin(name, backup, seed, **options), End()
        end.last = rounds
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            for run in [pool.submit(one.run, end) for one in each]:
                run.result()
        self.check(each)
        return each

    def check_random(self, transport):
        """On a busy host "fast" ranks may be slow, so one of several jobs must have rounds with
        several gradients of a rank, and gradients that a close has dropped."""
        several = lost = 0
        for attempt in range(ATTEMPTS):
            for seed in SEEDS:
                each = self.train(f'{transport} {seed} {attempt}',
                                  gradpool.Backup('static:4', gradients=3), seed, 60,
                                  transport=transport)
                several += sum(len(bodies) > 1 for one in each for bodies in one.counted.values())
                lost += sum(one.lost for one in each)
            if several and lost:
                return
        self.fail(f'{several} rounds with several gradients of a rank, {lost} dropped gradients')

    def test_rounds_have_the_bits_of_one_process_over_shared_memory(self):
        self.check_random('shm')

    def test_rounds_have_the_bits_of_one_process_over_tcp(self):
        self.check_random('tcp')

    def test_static_counts_gradients(self):
        """A round has four gradients, also without the slow rank. Further gradients may arrive
        while the close waits for a rank that is `lag` rounds behind."""
        each = self.train('static', gradpool.Backup('static:4', gradients=4, lag=16), 21, 60)
        counted = [counted for one in each for counted in one.own.values() if counted]
        self.assertEqual(min(counted), WORKERS)

    def test_auto_with_several_gradients_keeps_results_equal(self):
        self.train('auto', gradpool.Backup('auto', gradients=3), 31, 60)

    def test_seven_gradients_are_more_than_one_pass_of_a_lane(self):
        each = self.train('seven', gradpool.Backup('static:4', gradients=7, lag=16), 41, 40)
        self.assertEqual(len(each), WORKERS)

    # ---- failures ----

    @staticmethod
    def kill_lane(pid):
        service = python_case.service
        os.kill(pid, signal.SIGKILL)
        harness.until(lambda: pid not in service.pids() and len(service.pids()) == 2,
                      'a new aggregator has taken its place')

    def test_the_leader_lane_dies_between_the_request_and_the_set(self):
        """The slow rank stops before a gradient. The rounds of the other ranks then wait for
        another gradient of some rank, which is held back, too, until all lanes were killed."""
        for attempt in range(ATTEMPTS):
            if self.kill_during_a_gradient(f'killed {attempt}'):
                return
        self.fail('no rank was requested to go on')

    def kill_during_a_gradient(self, name):
        free, end = threading.Event(), End()
        free.set()

        def before(worker):
            if worker.rank == SLOW or worker.goes_on:
                free.wait()
        each = self.begin(name, gradpool.Backup('static:4', gradients=2), 51, before=before)
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            runs = [pool.submit(one.run, end) for one in each]
            try:
                harness.until(lambda: any(run.done() for run in runs) or
                              all(one.number >= 12 for one in each), 'all ranks have 12 rounds')
                free.clear()
                is_requested = self.await_request(each, runs)
                for pid in python_case.service.pids() if is_requested else ():
                    self.kill_lane(pid)
            finally:
                free.set()
            end.choose(each, 20)
            for run in runs:
                run.result()
        self.check(each)
        return is_requested

    def await_request(self, each, runs):
        """Waits until a rank was requested to go on, at most for some seconds: on a busy host the
        slow rank may be expected in time."""
        until_s = time.monotonic() + 5
        harness.until(lambda: any(run.done() for run in runs) or time.monotonic() > until_s or
                      any(one.goes_on for one in each), 'a rank is to go on')
        return any(one.goes_on for one in each)

    def test_lanes_die_behind_sets_with_several_gradients(self):
        """Without replicas a lane may die with a mean that a rank lacks. The job then ends, so one
        of several jobs must go on."""
        for attempt in range(ATTEMPTS):
            try:
                return self.kill_behind_sets(f'behind {attempt}')
            except gradpool.GradpoolError as error:
                if error.errno != errno.EOWNERDEAD or attempt == ATTEMPTS - 1:
                    raise

    def kill_behind_sets(self, name):
        each, end = self.begin(name, gradpool.Backup('static:4', gradients=3), 61), End()
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            runs = [pool.submit(one.run, end) for one in each]
            for pid in python_case.service.pids():
                wanted = max(one.number for one in each) + 10
                harness.until(lambda wanted=wanted: any(run.done() for run in runs) or
                              all(one.number >= wanted for one in each), '10 more rounds')
                if not any(run.done() for run in runs):
                    self.kill_lane(pid)
            end.choose(each, 10)
            for run in runs:
                run.result()
        self.check(each)

    def test_a_rank_that_dies_with_a_second_gradient_fails_the_job_by_its_number(self):
        processes = ranks.start_ranks('rank_dies', WORKERS)
        for error in ranks.finish_ranks(processes[1:]):
            self.assertIn('rank 0', error)
        harness.finish(processes[0], ranks.RANK_TIMEOUT_S)

    # ---- refusals ----

    def test_impossible_terms_are_refused(self):
        client = gradpool.connect()
        self.addCleanup(client.close)
        for options, workers, words in (
                ({'rule': 'static:2', 'gradients': 8}, 4, 'backup.gradients is 8; set gradients '
                 'to 0 to 7'),
                ({'rule': 'dbw', 'gradients': 2}, 4, "backup.gradients is 2 with rule 'dbw'"),
                ({'rule': 'auto', 'gradients': 2}, 257, 'needs a job of at most 256 workers'),
                ({'rule': 'auto', 'gradients': 2, 'record': 'sets'}, 4, 'sets are recorded and '
                 'replayed with one gradient of a rank in a round; set gradients to 1'),
                ({'rule': 'auto', 'gradients': 2, 'replay': 'sets'}, 4, 'sets are recorded and '
                 'replayed with one gradient of a rank in a round; set gradients to 1')):
            with self.raises(gradpool.Mismatch, words):
                client.join('refused', 0, workers, backup=gradpool.Backup(**options))

    def test_a_dropped_request_of_the_first_gradient_is_named(self):
        def run(worker):
            tensor, mean = worker.job.declare('t', 4), numpy.zeros(4, numpy.float32)
            for body in range(100):
                time.sleep(SLOW_S if worker.rank == SLOW else 0)
                request = worker.job.push_pull(tensor, numpy.ones(4, numpy.float32), mean)
                while worker.job.end_round().goes_on:
                    request = None
                    try:
                        worker.job.push_pull(tensor, numpy.ones(4, numpy.float32), mean)
                    except gradpool.Mismatch as error:
                        errors.append(str(error))
                        return
                request.wait()
                while worker.job.next_round():
                    pass
        errors, each = [], self.begin('lost request', gradpool.Backup('static:4', gradients=2), 71)
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            pending = [pool.submit(run, one) for one in each]
            harness.until(lambda: errors or all(one.done() for one in pending),
                          'a rank has dropped its Request')
            for one in each:
                one.job.client.close()
            for one in pending:
                one.exception()
        self.assertTrue(errors)
        self.assertIn("the Request of 't' from the first gradient of this round was dropped",
                      errors[0])


def rank_dies(rank, workers):
    """Rank 0 is killed when its second gradient of a round is announced. Returns the error of the
    other ranks."""
    with gradpool.connect() as client:
        job = client.join('dies', rank, workers, durability='none',
                          backup=gradpool.Backup('static:4', gradients=2))
        tensor, mean = job.declare('t', 4), numpy.zeros(4, numpy.float32)
        try:
            while True:
                time.sleep(SLOW_S if rank == SLOW else 0)
                request = job.push_pull(tensor, numpy.ones(4, numpy.float32), mean)
                while job.end_round().goes_on:
                    request = job.push_pull(tensor, numpy.ones(4, numpy.float32), mean)
                    if rank == 0:
                        threading.Timer(SLOW_S / 8, os.kill, (os.getpid(), signal.SIGKILL)).start()
                request.wait()
                while job.next_round():
                    pass
        except gradpool.GradpoolError as error:
            return str(error)


if __name__ == '__main__':
    sys.setswitchinterval(0.001)
    ranks.main(globals())
