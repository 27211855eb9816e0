"""Tests log lines of real workers: a wait for a stopped worker names its rank, the end of the
wait is logged, and a periodic line has the speed."""
import re
import signal
import unittest

import tap
from harness import Service, finish_training, until

ELEMENTS = 100000
TRIES = 5
PROGRESS = re.compile(
    r'level=info who="client" msg="job \'stall\' rank 0: (\d+) rounds in (\d+) iterations; since '
    r'the previous line: (\S+) rounds/s, (\S+) MiB/s pushed, (\d+) % of the time waited"')


class Stalls(unittest.TestCase):
    def setUp(self):
        self.service = Service(aggregators=1)
        self.addCleanup(self.service.end)

    def workers(self):
        return self.service.workers(
            'stall', 2, '--rounds', 1000000, '--verbose', '--elements', ELEMENTS, '--compute-ms', 5,
            environment={'GRADPOOL_LOG_LEVEL': 'info', 'GRADPOOL_STALL_MS': '1000',
                         'GRADPOOL_PROGRESS_SECONDS': '1'})

    def check_numbers(self, worker):
        lines, before = self.told(worker), 0
        for rounds, iterations, rate, mib, waited in lines:
            self.assertGreaterEqual(rounds, before)
            self.assertLessEqual(abs(rounds - iterations), 1)     # rounds of one tensor
            self.assertLess(rate, 1000 / 5)
            self.assertAlmostEqual(mib, rate * ELEMENTS * 4 / 2 ** 20, delta=0.1)
            self.assertLessEqual(waited, 100)
            before = rounds
        self.assertLessEqual(before, 1 + len(re.findall('(?m)^round ', worker.text())))

    def told(self, worker):
        return [tuple(map(float, line)) for line in PROGRESS.findall(worker.text())]

    def test_a_rank_that_stops_is_named_in_the_log_of_the_other_until_it_goes_on(self):
        waits, stops = self.workers()
        until(lambda: any(line[2] > 0 for line in self.told(waits)), 'progress', process=waits)
        stops.signal(signal.SIGSTOP)
        self.addCleanup(stops.signal, signal.SIGCONT)
        warned = re.compile(r'level=warn who="client" msg="job \'stall\' rank 0 has waited for '
                            r'\d+\.\d+ s: tensor \'\S+\' round \d+: no push from rank 1; '
                            rf'rank 1 \(\S+, pid {stops.pid}\) has joined, but its process '
                            'is stopped, by a signal')
        until(lambda: warned.search(waits.text()), 'the stopped rank is named', process=waits)
        until(lambda: any(line[2:] == (0, 0, 100) for line in self.told(waits)),
              'a second without progress', process=waits)
        # on a slow host the log may contain earlier waits
        at = warned.search(waits.text()).end()
        self.assertNotIn('goes on', waits.text()[at:])
        stops.signal(signal.SIGCONT)
        until(lambda: "job 'stall' rank 0 goes on after " in waits.text()[at:], 'it goes on',
              process=waits)
        finish_training(waits, stops)
        self.check_numbers(waits)

    def late(self, job, words, computes=False):
        """Checks the error of rank 0 when rank 1 has not pushed before the deadline. If a lane or
        the coordinator does not answer within a second, the error does not name rank 1, and the
        test tries another job."""
        for number in range(TRIES):
            name, pid = f'{job}-{number}', ''
            if computes:
                slow = self.service.worker(name, 1, 2, '--compute-ms', 100000, '--rounds', 1)
                until(lambda name=name: self.service.job(name), 'rank 1 has joined', process=slow)
                pid = slow.pid
            waits = self.service.worker(name, 0, 2, '--timeout-ms', 2000, '--rounds', 1)
            self.assertNotEqual(waits.wait(), 0)
            if re.search(words.format(pid=pid), waits.text()):
                self.assertIn('raise timeout_ms or GRADPOOL_TIMEOUT_MS', waits.text())
                return
        self.fail(f'{words} is not in the error: {waits.text()}')

    def test_the_error_at_the_deadline_says_whether_a_late_rank_has_started(self):
        self.late('alone', r'no push from rank 1 after \d+ ms; rank 1 has not joined \(start it')
        self.late('slow', r'; rank 1 \(\S+, pid {pid}\) has joined, but has not pushed this tensor',
                  computes=True)


if __name__ == '__main__':
    tap.main()
