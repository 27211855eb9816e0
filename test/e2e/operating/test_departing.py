"""Sends SIGTERM to a service whose local aggregators end with it, because it is the first process
of a container. Tasks move to an aggregator on another host, and their jobs continue there; the next
start of the service knows these jobs. A job whose tasks cannot move ends with the reason."""
import concurrent.futures
import contextlib
import os
import signal
import time

import numpy

import ranks  # sets GRADPOOL_LIBRARY, before gradpool is imported
import harness
import tap
import test_durability as durability
import test_leaving as leaving
import gradpool

STEPS = leaving.STEPS
setUpModule = durability.setUpModule
UNIT = 'sh', '-c', 'SYSTEMD_EXEC_PID=$$ exec "$@"', 'sh'
LONG = '--leave-timeout', '600'
MOVES = 'their tasks move to others first'


class Case(leaving.Case):
    def serve(self, *options, before=None):
        """Starts a service with one local aggregator. Later aggregators, joined by by_hand(),
        count as aggregators of other hosts. On a busy host such an aggregator can pause for longer
        than the default timeout."""
        self.service = harness.Service('--aggregator-timeout', '30', *options, aggregators=1,
                                       before=harness.container() if before is None else before)
        self.addCleanup(self.service.end)
        self.first = self.service.serve

    def begin_with(self, *options, durability=None, transport='shm', before=None):
        """Starts a job on the local aggregator. Then joins another aggregator."""
        self.serve(*options, before=before)
        self.begin('moves', transport, durability)
        self.train(0, 5)    # after five steps the lane has moments
        self.other = self.by_hand('elsewhere')
        self.service.joined = 1

    def terminate(self):
        inside = self.service.serve.pid
        with contextlib.suppress(IndexError):
            if self.service.before != UNIT:
                inside = harness.children(inside)[0]
        os.kill(inside, signal.SIGTERM)

    def stop_other(self):
        """Stops the other aggregator (SIGSTOP): it answers no ping, but is not lost before
        --aggregator-timeout."""
        self.other.signal(signal.SIGSTOP)
        self.addCleanup(self.other.signal, signal.SIGCONT)

    def check_fails(self, words):
        with ranks.expects(self, gradpool.GradpoolError, words):
            self.train(0, STEPS)


class Moves(Case):
    def depart(self, end=None, **how):
        self.begin_with(*LONG, **how)
        self.start_again()

        def harm():
            time.sleep(self.random.uniform(0, 0.1))     # at a random point of the job's work
            (end or self.terminate)()
            self.assertEqual(self.first.wait(), 0)
        self.train_while(harm)
        self.assertIn('gradpool serve ends: 1 job trains on without a coordinator',
                      self.first.text())
        self.assertIn(' without a coordinator; the remaining aggregators wait',
                      self.first.text())
        self.assertNotIn('loses the state', self.first.text())
        harness.until(lambda: not self.service.local_aggregators(), 'the local one has ended')
        self.start_again()
        self.train(0, 20)       # no coordinator runs now
        self.service.start('again')
        self.train(20, STEPS)
        self.check(STEPS)
        lanes = self.service.job('moves')['lanes']
        other, = [a for a in self.service.serving() if a['pid'] == self.other.pid]
        self.assertLessEqual(set(lanes), {lane['lane'] for lane in other['lanes']})
        self.assertIn(') is connected again', self.service.serve.text())

    def test_moments_leave_a_container_over_shm(self):
        self.depart()

    def test_moments_leave_a_container_over_tcp(self):
        self.depart(transport='tcp')

    def test_copies_that_no_other_aggregator_can_store_are_not_awaited(self):
        self.depart(durability='replica')

    def test_moments_survive_when_all_processes_of_a_unit_are_signalled(self):
        def end():
            for pid in [*self.service.pids()[:1], self.service.serve.pid]:
                os.kill(pid, signal.SIGTERM)
        self.depart(end, before=UNIT)


class Stays(Case):
    def test_a_job_whose_tasks_cannot_move_ends_and_another_trains_on(self):
        self.begin_with('--aggregator-timeout', '0', '--leave-timeout', '2', '--scale', 'off')
        lane = next(lane['lane'] for a in self.service.serving() if a['pid'] == self.other.pid
                    for lane in a['lanes'])
        with gradpool.connect(self.service.endpoint) as client, client.join('there', 0, 1) as job:
            tensor, values = job.declare('w', 1000), numpy.ones(1000, numpy.float32)
            self.assertEqual(self.service.ask('move', 'there', str(lane)).returncode, 0)
            job.push_pull(tensor, values).wait(durability.WAIT_MS)
            self.stop_other()
            self.terminate()
            self.said('the service ended job moves: ')
            self.check_fails('2 tensors could not move to other aggregators in time')
            self.assertEqual(self.service.serve.wait(), 0)
            self.assertIn('job moves loses the state of 2 tensors', self.first.text())
            self.assertIn('gradpool serve ends: 1 job trains on', self.first.text())
            self.other.signal(signal.SIGCONT)
            for _ in range(3):
                job.push_pull(tensor, values).wait(durability.WAIT_MS)
            self.service.start('again')
            self.assertIsNone(self.service.job('moves'))
            self.assertEqual(self.service.job('there')['lanes'], [lane])

    def begin_to_leave(self, timeout='0'):
        self.begin_with('--aggregator-timeout', timeout, *LONG)
        self.stop_other()
        self.terminate()
        self.said(MOVES)

    def test_a_second_signal_ends_the_aggregator_at_once(self):
        self.begin_to_leave()
        self.terminate()
        self.assertEqual(self.service.serve.wait(), 128 + signal.SIGTERM)
        self.check_fails('2 tensors could not move')

    def test_gradpool_stop_ends_all_jobs_in_order(self):
        self.begin_to_leave()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            code = pool.submit(self.service.stop)
            self.said('stopping (gradpool stop)')
            self.other.signal(signal.SIGCONT)
            self.assertEqual(code.result(), 0)
        self.check_fails('the operator stopped the service (gradpool stop)')

    def test_an_aggregator_lost_during_the_drain_is_not_awaited(self):
        self.begin_to_leave('5')
        self.other.kill()
        self.assertEqual(self.service.serve.wait(), 0)
        self.check_fails('2 tensors could not move')


if __name__ == '__main__':
    tap.main()
