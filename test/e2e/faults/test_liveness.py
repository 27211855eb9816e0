"""Tests aggregators that run but do nothing, and a stopped coordinator."""
import contextlib
import ctypes
import os
import pathlib
import signal
import time
import unittest

import tap
from harness import GRADPOOL, Process, Service, is_alive, result, state_of, until

TIMEOUT_S = 3
ROUNDS = 200
PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
WAIT_FOR_THREADS = 0x40000000  # value of __WALL


def ptrace(request, thread):
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    if libc.ptrace(request, thread, None, None) < 0:
        raise unittest.SkipTest('ptrace: ' + os.strerror(ctypes.get_errno()))


class Liveness(unittest.TestCase):
    def setUp(self):
        self.service = Service('--aggregator-timeout', TIMEOUT_S)
        self.addCleanup(self.service.end)

    def start(self, *options):
        workers = self.service.workers('job', 2, '--rounds', ROUNDS, '--verbose', '--elements',
                                       '100000', '--tensors', '4', '--compute-ms', '5', *options)
        for worker in workers:
            worker.wait_for('round 20\n')
        return workers

    def finish(self, workers):
        for worker in workers:
            answer = result(worker)
            self.assertEqual((answer['rounds'], answer['wrong']), (ROUNDS, 0))

    def states(self):
        return {a['pid']: a['state'] for a in self.service.status()['aggregators']}

    def replaced(self, pid):
        until(lambda: not is_alive(pid) and len(self.service.pids('up')) == 2,
              'a new aggregator has taken its place', process=self.service.serve)
        self.assertIn('has sent no answer for', self.service.serve.text())

    def test_a_stopped_aggregator_is_shown_killed_and_replaced_and_no_bit_changes(self):
        workers = self.start()
        pid = self.service.pids()[0]
        os.kill(pid, signal.SIGSTOP)
        until(lambda: self.states().get(pid) == 'silent', 'it is shown as silent',
              process=self.service.serve)
        self.replaced(pid)
        self.finish(workers)

    def test_an_aggregator_with_a_stuck_lane_is_killed_and_replaced_over_tcp(self):
        workers = self.start('--transport', 'tcp')
        pid = self.service.pids()[0]
        lane, = (int(t.name) for t in pathlib.Path(f'/proc/{pid}/task').iterdir()
                 if (t / 'comm').read_text() == 'gradpool-lane\n')
        ptrace(PTRACE_SEIZE, lane)
        ptrace(PTRACE_INTERRUPT, lane)

        def reaped():  # the tracer reaps the thread before any other process detects the end
            with contextlib.suppress(ChildProcessError):
                os.waitpid(lane, os.WNOHANG | WAIT_FOR_THREADS)
                return False
            return True
        os.waitpid(lane, WAIT_FOR_THREADS)
        until(reaped, 'it has been killed', process=self.service.serve)
        self.replaced(pid)
        self.finish(workers)

    def test_a_remote_aggregator_that_sleeps_is_lost_and_joins_again_when_it_wakes(self):
        joined = Process([GRADPOOL, 'aggregator', '--join',
                          self.service.endpoint.removeprefix('gradpool://'), '--cores', '0'],
                         self.service.folder, 'joined', self.service.operator())
        self.addCleanup(joined.kill)
        joined.wait_for('joined as aggregator 3')
        workers = self.start()
        joined.signal(signal.SIGSTOP)
        until(lambda: self.states().get(joined.pid) == 'lost', 'it counts as lost',
              process=self.service.serve)
        self.finish(workers)
        joined.signal(signal.SIGCONT)
        joined.wait_for('joined as aggregator 4')
        self.assertIn('counts as lost: its connection had ended for too long', joined.text())

    def test_a_coordinator_that_is_stopped_for_longer_kills_no_aggregator(self):
        workers = self.start()
        pids = sorted(self.service.pids())
        for _ in range(2):
            self.service.serve.signal(signal.SIGSTOP)
            time.sleep(TIMEOUT_S + 1)
            self.service.serve.signal(signal.SIGCONT)
            time.sleep(TIMEOUT_S / 4)
        self.finish(workers)
        time.sleep(TIMEOUT_S)
        self.assertEqual(sorted(self.service.pids()), pids)
        self.assertNotIn('has sent no answer', self.service.serve.text())

    def test_an_aggregator_stopped_while_its_coordinator_is_killed_continues(self):
        workers = self.start()
        pids = sorted(self.service.pids())
        os.kill(pids[0], signal.SIGSTOP)
        until(lambda: state_of(pids[0]) == 'T', 'it is stopped', process=self.service.serve)
        self.service.serve.kill()
        # the kernel may already have continued the stopped aggregator, because its process group is
        # orphaned
        os.kill(pids[0], signal.SIGCONT)  # may fail if a thread has not stopped yet
        self.service.start('serve-2')
        self.finish(workers)
        self.assertEqual(sorted(self.service.pids()), pids)


if __name__ == '__main__':
    tap.main()
