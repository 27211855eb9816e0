"""Tests that parameters and moments survive dead aggregators with the bits of uninterrupted
training. Copies are on other aggregators (--durability replica) or in workers' memory (--durability
worker). Both ranks are in this process."""
import contextlib
import os
import random
import signal
import subprocess
import tempfile
import threading
import time

import numpy

import ranks  # sets GRADPOOL_LIBRARY, before gradpool is imported
import harness
import tap
import test_durability as durability
import test_update_rules as rules
import gradpool
from harness import until

NAMES, WAIT_MS = durability.NAMES, durability.WAIT_MS
TIMES = 8 if os.environ.get('GRADPOOL_TEST_LONG') else 3
COMPUTES_S = 0.02               # time of a worker's step, in seconds
# If an aggregator has died five times in a minute, the coordinator delays its restart.
TIMES_ALL = min(TIMES, 4)
setUpModule = durability.setUpModule


class Case(durability.Case):
    SEED = tap.seed(time.time_ns() % 2**32)
    KIND = 'replica'

    def setUp(self):
        super().setUp()
        self.random, self.killed = random.Random(self.SEED), 0

    def owners(self):
        """Returns the aggregators that have tasks or copies of the job."""
        lanes = self.service.job(self.name)['lanes']
        return [a['pid'] for a in self.service.serving()
                if any(lane['lane'] in lanes for lane in a['lanes'])]

    def train_while(self, harm, transport, times, rule='adam'):
        """Trains while `harm`() is called `times` times at random moments. Then trains some more
        steps."""
        self.name = f'{rule}-{transport}'
        self.join(self.name, transport, rule, self.KIND)
        self.start()
        over, done = threading.Event(), [0]

        def do_harm():
            try:
                for _ in range(times):
                    time.sleep(self.random.uniform(0.05, 0.5))
                    harm()
                    done[0] += 1
            finally:
                over.set()
        thread = threading.Thread(target=do_harm, daemon=True)
        thread.start()
        steps = 0
        while steps < 100:
            for request in self.step(steps):
                request.wait(WAIT_MS)
            time.sleep(COMPUTES_S)
            steps += 1
            if not over.is_set() and steps == 90:
                steps = self.again()
        thread.join()
        self.assertEqual(done[0], times)
        self.assertGreater(self.killed, 0)
        self.check(100, rule)

    def again(self):
        """Starts the recorded training again, because it ended before the last call of harm()."""
        self.check(90, self.name.split('-')[0])
        first = rules.UpdateRules.first
        for values in self.values:
            for value, times in zip(values, NAMES.values()):
                value[:] = numpy.tile(first, times)
        self.start()
        return 0

    def is_copied(self):
        use = self.service.job(self.name)['use']
        return use.get('states', 0) == len(NAMES) and use['copied'] == use['states']

    def copies(self):
        use = self.service.job(self.name)['use']
        return [use.get(name) for name in ('states', 'copied', 'empty')]

    def kill(self, pid, how=signal.SIGKILL):
        # the process may have ended just now, and another process may have started
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, how)
            self.killed += 1

    def kill_owner(self):
        owners = self.owners()
        if owners:      # while tasks move to another aggregator, the job has no owner
            self.kill(self.random.choice(owners))

    def lanes(self):
        return [lane['lane'] for a in self.service.serving() for lane in a['lanes']]


class Replicas(Case):
    """Kills aggregators one after the other. The next one is killed when another aggregator has a
    copy."""

    def kill_when_copied(self):
        until(self.is_copied, 'each state has a copy', process=self.service.serve)
        self.kill_owner()

    def test_adam_goes_on_to_the_same_bits_when_owners_are_killed_over_shm(self):
        self.serve(aggregators=2)
        self.train_while(self.kill_when_copied, 'shm', TIMES)

    def test_adam_goes_on_to_the_same_bits_when_owners_are_killed_over_tcp(self):
        self.serve(aggregators=2)
        self.train_while(self.kill_when_copied, 'tcp', TIMES)

    def test_a_killed_replica_holder_changes_no_result(self):
        self.serve('--durability', 'replica', aggregators=3)

        def harm():
            until(self.is_copied, 'each state has a copy', process=self.service.serve)
            self.kill(self.random.choice(self.service.pids()))
        self.train_while(harm, 'shm', TIMES, 'momentum')

    def test_a_stopped_replica_holder_is_replaced(self):
        self.serve('--aggregator-timeout', '3', aggregators=3)

        def harm():
            until(self.is_copied, 'each state has a copy', process=self.service.serve)
            keepers = [pid for pid in self.service.pids() if pid not in self.owners()]
            self.kill(self.random.choice(keepers or self.service.pids()), signal.SIGSTOP)
        self.train_while(harm, 'tcp', TIMES)

    def test_the_coordinator_may_be_killed_as_well(self):
        self.serve(aggregators=2)

        def harm():
            until(lambda: self.is_copied() and self.owners(), 'each state has a copy',
                  process=self.service.serve)
            victim = self.random.choice(self.owners())
            self.service.serve.kill()
            if self.random.random() < 0.5:
                self.kill(victim)
            self.service.start(f'again{self.random.random()}')
            if victim in self.service.pids():
                self.kill(victim)
        self.train_while(harm, 'shm', TIMES)

    def test_a_moving_task_keeps_its_copy(self):
        self.serve('--scale', 'off', aggregators=3)

        def harm():
            until(self.lanes, 'a lane after the last kill', process=self.service.serve)
            self.service.ask('move', self.name, str(self.random.choice(self.lanes())))
            if not self.killed or self.random.random() < 0.5:
                self.kill_when_copied()
        self.train_while(harm, 'tcp', TIMES)

    def test_a_tensor_that_no_rank_sets_delays_no_drain(self):
        """After the owner's death, the task can move only to the aggregator that has the copy."""
        self.serve('--scale', 'off', aggregators=2)
        self.name = 'half-set'
        self.join(self.name, 'shm', 'adam', self.KIND)
        for job in self.jobs:
            job.declare_all({'nobody sets it': 1000}, rule='adam')
        self.start()
        self.train(0, 3)
        until(lambda: self.copies() == [len(NAMES) + 1, len(NAMES), 1], 'a copy of what was set',
              process=self.service.serve)
        dead = self.owners()[0]
        os.kill(dead, signal.SIGKILL)
        self.train(3, 10)
        until(lambda: len(self.lanes()) == 2 and self.copies()[1:] == [len(NAMES), 1] and
              dead not in self.owners(), 'another copy', process=self.service.serve)
        owner = next(a for a in self.service.status()['aggregators'] if a['pid'] in self.owners())
        answer = self.service.ask('drain', 'aggregator', str(owner['aggregator']))
        self.assertEqual(answer.returncode, 0, answer.stdout + answer.stderr)
        self.assertNotIn(owner['pid'], self.owners())
        self.train(10, 20)
        self.check(20)

    def test_without_another_aggregator_the_job_warns_and_a_loss_is_reported(self):
        self.serve('--durability', 'replica', aggregators=1)
        self.name = 'alone'
        self.join(self.name)
        self.start()
        self.train(0, 3)
        self.assertFalse(self.is_copied())
        until(lambda: 'because the service has no other aggregator' in self.service.serve.text(),
              'the log has the reason', process=self.service.serve)
        self.kill_owner()
        with ranks.expects(self, gradpool.GradpoolError, 'died with the lane', 'snapshot'):
            self.train(3, 4)


class InWorkers(Case):
    """Kills aggregators at random times, sometimes all aggregators."""
    KIND = 'worker'

    def kill_all(self):
        for pid in self.service.pids():
            self.kill(pid)

    def test_adam_goes_on_to_the_same_bits_when_owners_are_killed_over_shm(self):
        self.serve(aggregators=2)
        self.train_while(self.kill_owner, 'shm', TIMES)

    def test_adam_goes_on_to_the_same_bits_when_owners_are_killed_over_tcp(self):
        self.serve(aggregators=2)
        self.train_while(self.kill_owner, 'tcp', TIMES)

    def test_momentum_goes_on_to_the_same_bits_when_all_aggregators_are_killed_at_once(self):
        self.serve('--durability', 'worker', aggregators=2)
        self.train_while(self.kill_all, 'shm', TIMES_ALL, 'momentum')

    def test_the_coordinator_may_be_killed_as_well(self):
        self.serve(aggregators=2)

        def harm():
            self.service.serve.kill()
            self.service.start(f'again{self.random.random()}')
            self.kill_owner()
        self.train_while(harm, 'shm', TIMES)

    def test_a_moving_task_keeps_its_copy(self):
        self.serve('--scale', 'off', aggregators=2)

        def harm():
            until(self.lanes, 'a lane after the last kill', process=self.service.serve)
            self.service.ask('move', self.name, str(self.random.choice(self.lanes())))
            if not self.killed or self.random.random() < 0.5:
                self.kill_owner()
        self.train_while(harm, 'tcp', TIMES)

    def test_the_log_reports_no_lost_parameters_while_a_copy_is_fetched(self):
        self.serve(aggregators=2)
        said = []

        def harm():
            with tempfile.TemporaryDirectory() as folder:
                asker = subprocess.Popen(
                    durability.snapshot_command(self.service, self.name, folder + '/it'),
                    stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                time.sleep(self.random.uniform(0, 0.2))
                self.kill_owner()
                said.append(harness.finish(asker, 60)[1])
        self.train_while(harm, 'shm', TIMES)
        for text in said:
            self.assertNotIn('has no parameters', text)

    def test_the_requested_durability_of_a_job_is_shown(self):
        self.serve()
        self.join('shown', durability='worker')
        self.assertEqual(self.service.job('shown')['durability'], 'worker')
        self.assertIn('durability: worker', self.service.ask('explain', 'shown').stdout)
        with ranks.expects(self, gradpool.GradpoolError, 'durability worker', 'none'):
            self.clients[0].join('shown', 1, rules.WORKERS, durability='none')
        with ranks.expects(self, gradpool.Mismatch, "durability 'twice'"):
            self.clients[0].join('other', 0, 1, durability='twice')


if __name__ == '__main__':
    tap.main()
