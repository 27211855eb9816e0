"""Tests that waiting jobs show the reason: the service itself, an aggregator, or the measurement of
another job. A service with a name refuses aggregators of services with other names."""
import contextlib
import os
import signal
import unittest

import progress
import tap
from harness import GRADPOOL, Process, Service, end_training, free_ports, result, run, until

ONWARDS = ('--rounds', 1000000, '--verbose', '--elements', 1 << 12, '--compute-ms', 20)


class Case(unittest.TestCase):
    def serve(self, *options, **keywords):
        self.service = Service(*options, **keywords)
        self.addCleanup(self.service.end)

    def join_by_hand(self, name='joined', *options, over=None, environment=None):
        process = Process([GRADPOOL, 'aggregator', '--join',
                           over or f'unix:{self.service.state}/control.sock', '--cores', '0',
                           *options], self.service.folder, name, environment)
        self.addCleanup(process.kill)
        return process

    def await_waiting(self, job, words):
        """Waits until `gradpool jobs` and the log of rank 0 show the reason."""
        def waits():
            shown = self.service.job(job)
            return shown and shown['state'] == 'waiting' and words in shown['waits_for']
        until(waits, f'{job} is shown as waiting', process=self.service.serve)


class ForTheService(Case):
    def test_a_worker_that_is_started_before_the_service_waits_and_logs_the_reason(self):
        self.serve(aggregators=1)
        self.service.stop()
        worker = self.service.worker('early', 0, 1, '--rounds', 3)
        worker.wait_for('no connection to the service at gradpool://127.0.0.1:')
        self.assertIn('GRADPOOL_CONNECT_TIMEOUT_MS', worker.text())
        self.service.start('again')
        self.assertEqual(result(worker)['wrong'], 0)

    def test_a_command_fails_at_once(self):
        endpoint = f'127.0.0.1:{free_ports(1)}'
        watch = progress.Stopwatch()
        ended = run([GRADPOOL, 'status', '--endpoint', endpoint], capture_output=True, text=True)
        self.assertEqual(ended.returncode, 3, ended.stderr)
        self.assertIn('Connection refused', ended.stderr)
        self.assertLess(watch.seconds(), 5)

    def test_a_worker_s_wait_ends_at_its_connect_timeout(self):
        self.serve(aggregators=1)
        self.service.stop()
        worker = self.service.worker('early', 0, 1,
                                     environment={'GRADPOOL_CONNECT_TIMEOUT_MS': '700'})
        self.assertNotEqual(worker.wait(), 0)
        self.assertIn('Connection refused', worker.text().splitlines()[-1])


class ForAnAggregator(Case):
    def test_a_job_waits_for_the_first_aggregator(self):
        self.serve(aggregators=0)
        waits = {'GRADPOOL_CONNECT_TIMEOUT_MS': '600000'}
        workers = self.service.workers('early', 2, '--rounds', 5, environment=waits)
        for worker in workers:
            worker.wait_for('waits for lanes: no aggregator is up')
            self.assertIn(' waits for lanes: ', worker.text())
        self.await_waiting('early', 'no aggregator is up')
        self.join_by_hand()
        for worker in workers:
            self.assertEqual(result(worker)['wrong'], 0)
            self.assertIn('job early no longer waits for lanes', worker.text())

    def test_a_worker_without_an_aggregator_fails_at_its_connect_timeout(self):
        self.serve(aggregators=0)
        worker = self.service.worker('early', 0, 1,
                                     environment={'GRADPOOL_CONNECT_TIMEOUT_MS': '5000'})
        self.assertNotEqual(worker.wait(), 0)
        self.assertIn('no aggregator is up', worker.text())

    def test_a_deadline_before_the_first_aggregator_names_the_reason_and_the_variable(self):
        self.serve(aggregators=0)
        worker = self.service.worker('early', 0, 1, '--timeout-ms', 5000,
                                     environment={'GRADPOOL_TIMEOUT_MS': '5000'})
        self.assertNotEqual(worker.wait(), 0)
        self.assertRegex(worker.text(), "job 'early' still waits after .* no aggregator is up.*"
                         'raise GRADPOOL_TIMEOUT_MS')

    def test_a_job_outlives_a_silence_of_its_only_aggregator(self):
        self.serve('--aggregator-timeout', '0.5', aggregators=0)
        # Joins over TCP as an aggregator of another host would. The service would kill a silent
        # local aggregator, which joins over its Unix socket.
        joined = self.join_by_hand(over=self.service.endpoint.removeprefix('gradpool://'),
                                   environment=self.service.operator())
        joined.wait_for('joined as aggregator 1')
        workers = self.service.workers('cut', 2, *ONWARDS)
        for worker in workers:
            worker.wait_for('round 5\n')
        os.kill(joined.pid, signal.SIGSTOP)
        self.await_waiting('cut', 'is gone, and no lane is left')
        os.kill(joined.pid, signal.SIGCONT)
        joined.wait_for('joined as aggregator 2')
        for worker in workers:
            worker.wait_for('job cut no longer waits for lanes')
            seen = worker.size()
            until(lambda worker=worker, seen=seen: worker.size() > seen + 200, 'it trains on',
                  process=worker)
        end_training(*workers)


class ForAMeasurement(Case):
    def test_a_measured_job_waits_for_a_new_one_to_be_measured(self):
        self.serve('--loss-limit', '5%', '--scale', 'off', '--cores', 0, aggregators=1)
        again = self.service.worker('known', 0, 1, *ONWARDS)
        until(lambda: (self.service.job('known') or {}).get('alone_period_ns'), 'it is measured',
              process=self.service.serve)
        end_training(again)
        until(lambda: not self.service.job('known'), 'it has ended', process=self.service.serve)
        # The service would have measured the job after some seconds. The test stops its worker
        # earlier, until the other job waits.
        slow = self.service.worker('new', 0, 1, '--rounds', 1000000, '--verbose', '--elements',
                                   1 << 12, '--compute-ms', 1000)
        slow.wait_for('round 1\n')
        slow.signal(signal.SIGSTOP)
        known = self.service.worker('known', 0, 1, *ONWARDS)
        known.wait_for('not measured yet, such as new')
        self.await_waiting('known', 'not measured yet')
        slow.signal(signal.SIGCONT)
        known.wait_for('round 5\n')
        self.assertIn('job known no longer waits for lanes', known.text())
        end_training(known, slow)


class Names(Case):
    def refused(self, name, *options):
        joining = self.join_by_hand(name, *options)
        self.assertEqual(joining.wait(), 1)
        return joining.text()

    def test_an_aggregator_joins_the_named_service_only(self):
        self.serve('--name', 'blue', aggregators=1)
        self.assertIn('this is service blue, and the aggregator is for service green',
                      self.refused('green', '--service', 'green'))
        self.assertIn('give --service blue', self.refused('none'))
        self.join_by_hand('blue', '--service', 'blue').wait_for('joined as aggregator')
        settings = self.service.ask('status').stdout + self.service.ask('report', '--json').stdout
        self.assertIn('blue', settings)

    def test_a_service_without_a_name_takes_no_aggregator_that_names_one(self):
        self.serve(aggregators=0)
        self.assertIn('this service has no name', self.refused('green', '--service', 'green'))

    def test_a_name_with_a_blank_is_refused(self):
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(__import__('tempfile').TemporaryDirectory())
            ended = run([GRADPOOL, 'serve', '--state-dir', folder, '--name', 'a b'],
                        capture_output=True, text=True)
        self.assertEqual(ended.returncode, 2)
        self.assertIn('expected 1 to 64 letters', ended.stderr)


if __name__ == '__main__':
    tap.main()
