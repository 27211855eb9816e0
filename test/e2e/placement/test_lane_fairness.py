"""Tests lane time of several jobs on one lane. The cost of each job must be shown separately. If a
rank blocks a round during a transfer, the messages to the waiting ranks and to the operator must
name this rank."""
import re
import signal
import unittest

import tap
from harness import Service, end_training, until

# Rank 1 pushed before it was stopped. If it had been stopped before its push, the message would
# differ.
NAMED = (r'all ranks have pushed, no answer from the memory of rank 1; rank 1 \(\S+, pid {pid}\) '
         'has joined, but its process is stopped, by a signal')
SAID = (r'job stuck: lane \d waits for rank 1 of job stuck \(\S+\): its memory does not answer, '
        'its process may be stopped')


class MidRead(unittest.TestCase):
    def setUp(self):
        self.service = Service(aggregators=2)
        self.addCleanup(self.service.end)
        self.waits, self.stops = self.service.workers(
            'stuck', 2, '--rounds', 1000000, '--verbose', '--transport', 'tcp',
            '--elements', 8000000, '--no-check', environment={'GRADPOOL_STALL_MS': '1000'})

    def rounds(self):
        return len(re.findall('(?m)^round ', self.waits.text()))

    def stop_in_mid_read(self):
        """Stops the rank while its memory is read. The lane reads during most of a round, so a few
        attempts are enough."""
        named = re.compile(NAMED.format(pid=self.stops.pid))
        for _ in range(20):
            before, at = self.rounds(), len(self.waits.text())
            until(lambda: self.rounds() > before, 'a round', process=self.waits)
            self.stops.signal(signal.SIGSTOP)
            until(lambda: 'has waited for' in self.waits.text()[at:], 'it waits',
                  process=self.waits)
            if named.search(self.waits.text()[at:]):
                return
            self.stops.signal(signal.SIGCONT)
        self.fail('never stopped in mid-read: ' + self.waits.tail())

    def test_a_rank_stopped_in_mid_read_is_named_to_the_others_and_by_drain(self):
        self.addCleanup(self.stops.signal, signal.SIGCONT)
        self.stop_in_mid_read()
        said = ''
        # the job's tensors may be on one aggregator or on both
        for aggregator in (1, 2):
            if not re.search(SAID, said):
                answer = self.service.ask('drain', 'aggregator', aggregator)
                said += answer.stdout + answer.stderr
        self.assertRegex(said, SAID)
        self.stops.signal(signal.SIGCONT)
        before = self.rounds()
        until(lambda: self.rounds() > before + 2, 'it goes on', process=self.waits)
        end_training(self.waits, self.stops)


class Bills(unittest.TestCase):
    def setUp(self):
        self.service = Service('--cores', 0, aggregators=1)     # a single lane from the start
        self.addCleanup(self.service.end)

    def busy(self, name):
        return self.service.job(name)['use']['busy_ns']

    def is_steady(self, name):
        before = self.busy(name)
        return before > 0 and before == self.busy(name)

    def test_a_job_pays_for_its_silent_connections_while_other_jobs_train(self):
        idle = self.service.workers('idle', 3, '--rounds', 1000000, '--verbose')
        for worker in idle:
            worker.wait_for('round ')
            worker.signal(signal.SIGSTOP)
        until(lambda: self.is_steady('idle'), 'nothing is done for it', process=idle[0])
        before = self.busy('idle')
        busy = self.service.worker('busy', 0, 1, '--rounds', 100000000, '--no-check',
                                   '--elements', 1000, '--verbose')
        until(lambda: self.busy('idle') > before, 'the bill', process=busy)
        end_training(busy, *idle)


if __name__ == '__main__':
    tap.main()
