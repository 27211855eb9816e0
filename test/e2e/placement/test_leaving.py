"""Tests SIGTERM of an aggregator as a planned end. Its tasks and their state move away first. A
job without copies then continues with the bits of an undisturbed training. A message names each
task that cannot move in time. Both ranks are in this process."""
import concurrent.futures
import os
import random
import re
import signal
import time

import numpy

import ranks  # sets GRADPOOL_LIBRARY, before gradpool is imported
import harness
import progress
import tap
import test_durability as durability
import test_update_rules as rules
import gradpool
from harness import GRADPOOL, Process, is_alive, until

STEPS = rules.STEPS
BAR_S = 5       # longest leave with 64 MiB of moments, in seconds
IS_LONG = os.environ.get('GRADPOOL_TEST_LONG')
TIMES = 20 if IS_LONG else 3
MOMENTS_BYTES = (64 if IS_LONG else 16) << 20
setUpModule = durability.setUpModule


class Case(durability.Case):
    SEED = tap.seed(time.time_ns() % 2**32)

    def setUp(self):
        super().setUp()
        self.random = random.Random(self.SEED)

    def begin(self, name, transport='shm', durability=None):
        self.name = name
        self.join(name, transport, durability=durability)
        self.start()

    def owner(self):
        """Returns an aggregator that has tasks of the job. None: the tasks are being moved."""
        lanes = self.service.job(self.name)['lanes']
        return next((a for a in self.service.serving() for lane in a['lanes']
                     if lane['lane'] in lanes), None)

    def leave(self, a, number=signal.SIGTERM):
        """Sends the signal to the aggregator and waits for its end."""
        os.kill(a['pid'], number)
        self.await_end(a['pid'])

    def await_end(self, pid):
        until(lambda: not is_alive(pid), f'aggregator {pid} ends', process=self.service.serve)

    def train_while(self, harm, end=STEPS):
        """Trains while `harm`() runs, and repeats the training if needed. The last parameters must
        equal those of an undisturbed training."""
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            harmed = pool.submit(harm)
            steps = 0
            while steps < end or not harmed.done():
                if steps == end:
                    self.check(end)
                    self.start_again()
                    steps = 0
                self.train(steps, steps + 1)
                time.sleep(0.002)   # takes the place of the computation of a step
                steps += 1
            harmed.result()
        self.check(end)

    def start_again(self):
        for values in self.values:
            for value, times in zip(values, durability.NAMES.values()):
                value[:] = numpy.tile(rules.UpdateRules.first, times)
        self.start()

    def by_hand(self, name, *options):
        """Starts an aggregator connected over TCP."""
        there = self.service.endpoint.removeprefix('gradpool://')
        process = Process([GRADPOOL, 'aggregator', '--join', there, '--cores', '0', *options],
                          self.service.folder, name, self.service.operator())
        self.service.children.append(process)
        process.wait_for('joined as aggregator')
        return process

    def said(self, words):
        """Waits for these words in the log of `serve`, or of its surviving aggregators."""
        until(lambda: words in self.service.serve.text(), f'{words!r} is said',
              process=self.service.serve)


class Local(Case):
    """Ends local aggregators of `serve`."""

    def leave_again_and_again(self, transport, aggregators, *options, times=TIMES, durability=None):
        self.serve('--lanes-per-core', '2', *options, aggregators=aggregators)
        self.begin(f'{aggregators}-{transport}', transport, durability)
        left = []

        def harm():
            while len(left) < times:
                time.sleep(self.random.uniform(0, 0.1))     # at a random point of the job's work
                a = self.owner()
                if a:
                    self.leave(a)
                    left.append(a['pid'])
            for pid in self.service.pids():     # both at the same time
                os.kill(pid, signal.SIGTERM)
                left.append(pid)
            for pid in left:
                self.await_end(pid)
        self.train_while(harm)
        until(lambda: len(self.service.pids('up')) == aggregators, 'each was replaced',
              process=self.service.serve)
        text = self.service.serve.text()
        for pid in left:
            self.assertIn(f'the local aggregator with pid {pid} has ended: exit code 0', text)
        allowed = 'level=info|GRADPOOL_TEST_|because the service has no other aggregator'
        self.assertEqual([s for s in text.splitlines() if not re.search(allowed, s)], [])

    def test_the_only_aggregator_is_replaced_first_over_shm(self):
        more_than_after_crashes = max(TIMES, 6)     # so many crashes would delay a restart
        self.leave_again_and_again('shm', 1, times=more_than_after_crashes)

    def test_the_only_aggregator_is_replaced_first_over_tcp(self):
        self.leave_again_and_again('tcp', 1, '--scale', 'off')

    def test_one_of_two_aggregators_leaves_over_shm(self):
        self.leave_again_and_again('shm', 2)

    def test_one_of_two_aggregators_leaves_over_tcp(self):
        self.leave_again_and_again('tcp', 2)

    def test_owners_with_copies_of_their_state_leave(self):
        for durability in ('replica', 'worker'):
            self.leave_again_and_again('tcp', 2, durability=durability, times=1)
            self.service.end()

    def test_a_leave_during_moves_from_and_to_the_aggregator_loses_no_sum(self):
        self.serve('--lanes-per-core', '2', '--scale', 'off', aggregators=2)
        self.begin('moves')

        def harm():
            for number in range(4):
                until(lambda: len(self.service.pids('up')) == 2 and self.owner(), 'both are up')
                source = self.owner()
                target = next(a for a in self.service.serving() if a['pid'] != source['pid'])
                with concurrent.futures.ThreadPoolExecutor(1) as pool:
                    move = pool.submit(self.service.ask, 'move', self.name,
                                       str(target['lanes'][0]['lane']))
                    time.sleep(self.random.uniform(0, 0.1))
                    self.leave((source, target)[number % 2])
                    move.result()
        self.train_while(harm)
        self.assertNotIn('loses the state', self.service.serve.text())

    def test_a_coordinator_that_is_down_is_waited_for(self):
        self.serve()
        self.begin('down')
        self.train(0, 20)
        old = self.owner()['pid']
        self.service.serve.kill()
        os.kill(old, signal.SIGTERM)
        self.said('this aggregator begins to end')
        self.train(20, 40)      # steps need no coordinator
        self.service.start('again')
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            ended = pool.submit(self.await_end, old)
            steps = 40
            while not ended.done() and steps < STEPS - 10:
                self.train(steps, steps + 1)
                time.sleep(0.05)
                steps += 1
            ended.result()
        self.train(steps, STEPS)
        self.check(STEPS)
        self.assertNotIn('loses the state', self.service.serve.text())

    def test_a_second_signal_ends_the_aggregator_at_once(self):
        self.serve()
        self.begin('twice')
        pid = self.owner()['pid']
        os.kill(self.service.serve.pid, signal.SIGSTOP)
        self.addCleanup(os.kill, self.service.serve.pid, signal.SIGCONT)
        os.kill(pid, signal.SIGTERM)
        self.said('this aggregator begins to end')
        os.kill(pid, signal.SIGINT)
        watch = progress.Stopwatch()
        self.await_end(pid)
        self.assertLess(watch.seconds(), 15)
        os.kill(self.service.serve.pid, signal.SIGCONT)
        with ranks.expects(self, gradpool.GradpoolError, 'died with the lane'):
            self.train(0, 2)

    def test_much_state_leaves_in_time_and_the_job_trains_on(self):
        for transport in ('shm', 'tcp'):
            self.serve('--lanes-per-core', '2')
            took_s, pressed_s = self.leave_with_much(transport)
            print(f'# {transport}: {MOMENTS_BYTES >> 20} MiB of moments left in {took_s:.2f} s, '
                  f'and {pressed_s:.2f} s of waiting for cores')
            self.assertLess(took_s, BAR_S)
            self.service.end()

    def leave_with_much(self, transport):
        """Returns the length of the leave, and the part of this time without a free core."""
        elements = MOMENTS_BYTES // 8
        clients = [gradpool.connect(self.service.endpoint, transport) for _ in range(2)]
        for client in clients:
            self.addCleanup(client.close)
        jobs = [c.join('much', rank, 2) for rank, c in enumerate(clients)]
        tensors = [job.declare('w', elements, rule='adam') for job in jobs]
        values = [numpy.ones(elements, numpy.float32) for _ in jobs]
        gradients = numpy.linspace(-1, 1, elements, dtype=numpy.float32)

        def all_of(make):
            for request in [make(*own) for own in zip(jobs, tensors, values)]:
                request.wait(durability.WAIT_MS)

        def step():
            all_of(lambda job, t, value: job.update(t, gradients, value, lr=0.01))

        def begin():
            for value in values:
                value[:] = 1
            all_of(lambda job, t, value: job.broadcast(t, value))

        def check():
            for value in values:
                self.assertTrue(numpy.array_equal(value, undisturbed))
        begin()
        for _ in range(6):
            step()
        undisturbed = values[0].copy()
        begin()
        step()
        pid = self.service.pids()[0]
        watch = progress.Stopwatch()

        def leave():
            os.kill(pid, signal.SIGTERM)
            self.await_end(pid)
            return watch.seconds(), watch.pressed_s()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            left, steps = pool.submit(leave), 1
            while not left.done() or steps < 6:
                if steps == 6:
                    check()
                    begin()
                    steps = 0
                step()
                steps += 1
            check()
            return left.result()


class ByHand(Case):
    """Ends aggregators connected over TCP, which are not replaced."""

    def setUp(self):
        super().setUp()
        # on a busy host an aggregator can pause for longer than the default timeout of remote
        # aggregators
        self.serve('--aggregator-timeout', 30, aggregators=0)

    def test_state_moves_to_an_aggregator_that_joins_in_time(self):
        first = self.by_hand('first', '--leave-timeout', 120)
        self.begin('joins', 'tcp')
        self.train(0, 20)
        first.signal(signal.SIGTERM)
        self.said('begins to end: its tasks and copies move to others')
        self.by_hand('second')
        self.train(20, STEPS)
        self.assertEqual(first.wait(), 0)
        self.check(STEPS)
        self.assertNotIn('loses the state', self.service.serve.text())

    def test_tasks_without_a_place_in_time_are_named_on_both_sides(self):
        for number in range(5):
            alone = self.leave_alone(number)
            if 'has not answered within --leave-timeout' not in alone.text():
                break       # otherwise the coordinator has answered too late; tries again
        words = f'job stays-{number} loses the state of 2 tensors'
        self.assertIn(words, alone.text())
        self.assertIn('tasks and state move to other aggregators, within 2 s; a second signal ends '
                      'this aggregator at once', alone.text())
        self.assertIn('this aggregator is drained, but some state has no other place and is lost: ',
                      alone.text())
        self.said(words)
        self.said(' ends with a loss: ')

    def leave_alone(self, number):
        """Ends the only aggregator, which has the state of a job."""
        alone = self.by_hand(f'alone-{number}', '--leave-timeout', '2')
        self.begin(f'stays-{number}')
        self.train(0, 3)
        alone.signal(signal.SIGTERM)
        self.assertEqual(alone.wait(), 0)
        return alone

    def test_a_failed_drain_is_undone_and_reported(self):
        self.by_hand('alone')
        self.begin('stays')
        answer = self.service.ask('drain', 'aggregator', '1')
        self.assertEqual(answer.returncode, 1)
        self.assertIn('job stays', answer.stderr)
        self.assertIn('the drain failed and is undone: 1 lane is used again', answer.stderr)
        self.assertIn('gradpool: some tasks stay on their lanes: ', answer.stderr)
        self.assertIn('; give the order again when the reason is gone', answer.stderr)
        status = self.service.status()
        self.assertEqual([lane['state'] for lane in status['aggregators'][0]['lanes']], ['open'])
        self.said('is open again: its drain failed')
        with gradpool.connect(self.service.endpoint) as client, client.join('new', 0, 1) as job:
            job.declare('x', 10)    # the new job needs an open lane


if __name__ == '__main__':
    tap.main()
