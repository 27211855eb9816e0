"""Tests backup workers with a real service: runs client/backup_example.c with a slow rank, over
each transport. A round closes at its second gradient. All ranks must have equal parameters after
each round."""
import collections
import ctypes
import errno
import os
import re
import signal
import time
import unittest

import gradpool
from gradpool._native import binding

import harness
import tap

EXAMPLE = harness.BUILD / 'client' / 'gradpool-backup-example'
RANKS, ROUNDS = 3, 40
LINE = re.compile(r'round (\d+) of (\d+): (counted|dropped), (weight \S+ bias \S+)')
STOPS = 31, 37, 41, 53, 61, 67, 71, 79      # rounds before each stop
# a rank that makes no new round for this number of seconds waits for another rank
STILL_S = 15
service = None


def setUpModule():
    global service
    service = harness.Service('--durability', 'none')


def tearDownModule():
    service.end()


class BackupWorkers(unittest.TestCase):
    def start(self, job, slow_ms, transport, rounds=ROUNDS):
        children = []
        for rank in range(RANKS):
            environment = {'GRADPOOL_ENDPOINT': service.endpoint, 'GRADPOOL_JOB': job,
                           'GRADPOOL_TRANSPORT': transport, 'GRADPOOL_RANK': str(rank),
                           'GRADPOOL_SIZE': str(RANKS)}
            children.append(harness.Process([EXAMPLE, str(slow_ms), str(rounds)], service.folder,
                                            f'{job}-{rank}', environment))
        return children

    def finish(self, child):
        self.assertEqual(child.wait(), 0, child.text())
        return child.text()

    def run_ranks(self, *options):
        """Returns the output of each rank."""
        return [self.finish(child) for child in self.start(*options)]

    def check(self, outputs):
        """Checks that all ranks with the result of a round have equal parameters. Returns for each
        rank how many of its gradients were dropped."""
        parameters = collections.defaultdict(set)
        for output in outputs:
            rounds = [LINE.match(line) for line in output.splitlines()[:-1]]
            self.assertTrue(all(rounds), output)
            numbers = [int(found[1]) for found in rounds]
            self.assertEqual(numbers, sorted(set(numbers)), output)
            self.assertGreaterEqual(numbers[-1], ROUNDS)
            for found in rounds:
                parameters[int(found[1])].add(found[4])
        for number, values in parameters.items():
            self.assertEqual(len(values), 1, (number, values))
        return [int(output.rsplit(' ', 1)[1]) for output in outputs]

    def check_killed(self, ranks):
        """Kills ranks that would train forever, and checks the rounds that they have ended."""
        for rank in ranks:
            rank.kill()
        self.check([rank.text().rpartition('round ')[0] + 'killed 0' for rank in ranks])

    def run_over(self, transport):
        dropped = self.check(self.run_ranks(f'slow-{transport}', 40, transport))
        self.assertGreater(dropped[0], 0)
        # the "slow" rank is as fast as the other ranks, so any rank may be the third in a round
        self.check(self.run_ranks(f'even-{transport}', 1, transport))

    def test_a_stopped_straggler_delays_no_round(self):
        ranks = self.start('stopped', 20, 'shm')
        harness.until(lambda: ranks[0].text() or ranks[0].child.poll() is not None,
                      'the straggler has ended a round')
        os.kill(ranks[0].pid, signal.SIGSTOP)
        outputs = [self.finish(rank) for rank in ranks[1:]]
        os.kill(ranks[0].pid, signal.SIGCONT)
        self.check([self.finish(ranks[0]), *outputs])

    def rounds_of(self, rank):
        return rank.text().count('\n')

    def await_rounds(self, rank, more):
        """Waits until the rank has ended `more` further rounds."""
        wanted = self.rounds_of(rank) + more
        harness.until(lambda: self.rounds_of(rank) >= wanted or rank.child.poll() is not None,
                      f'{rank.name} has ended {more} more rounds')
        self.assertIsNone(rank.child.poll(), rank.tail())

    def is_delayed(self, straggler, rank, more):
        """Waits until the rank has ended `more` further rounds while the straggler is stopped.
        Returns True if a round waits for the straggler: over TCP the straggler itself has to
        receive the result of a round that counted its gradient."""
        wanted = self.rounds_of(rank) + more
        while (begun := self.rounds_of(rank)) < wanted:
            still_s = time.monotonic() + STILL_S
            harness.until(lambda: self.rounds_of(rank) > begun or time.monotonic() > still_s,
                          f'{rank.name} has ended a round')
            if self.rounds_of(rank) == begun:
                os.kill(straggler.pid, signal.SIGCONT)
                self.check_counted(straggler, int(LINE.findall(rank.text())[-1][0]))
                return True
        return False

    def check_counted(self, straggler, number):
        """Checks that this round or the next one counted the straggler's gradient. Other ranks
        receive the result of a round before the round is committed."""
        def lines():
            return [line[0::2] for line in LINE.findall(straggler.text())
                    if int(line[0]) >= number]
        harness.until(lambda: lines() and int(lines()[-1][0]) > number,
                      f'{straggler.name} has ended round {number + 1}')
        self.assertTrue({(str(number), 'counted'), (str(number + 1), 'counted')} & set(lines()),
                        (number, lines()[:5]))

    def stop_again_and_again(self, transport):
        """Stops the straggler at any moment: while it computes, or while it receives parameters."""
        ranks = self.start(f'stops-{transport}', 50, transport, 1000000)
        self.await_rounds(ranks[0], 2)
        delayed = 0
        for rounds in STOPS:
            self.await_rounds(ranks[1], rounds)
            os.kill(ranks[0].pid, signal.SIGSTOP)
            delayed += self.is_delayed(ranks[0], ranks[1], 50)
            os.kill(ranks[0].pid, signal.SIGCONT)
        # On a busy host the straggler often waits for a core after its gradient has been counted.
        # The test has checked each delay, so this assertion only shows that some stops cause no
        # delay.
        self.assertLess(delayed, len(STOPS) if transport == 'tcp' else 1)
        self.await_rounds(ranks[0], 2)
        self.check_killed(ranks)

    def test_a_straggler_that_stops_again_and_again_delays_no_round_over_tcp(self):
        self.stop_again_and_again('tcp')

    def test_a_straggler_that_stops_again_and_again_delays_no_round_over_shared_memory(self):
        self.stop_again_and_again('shm')

    def test_parameters_stay_equal_while_tasks_move(self):
        ranks = self.start('moved', 5, 'tcp', 1000000)
        harness.until(lambda: all(rank.text() for rank in ranks), 'each rank has ended rounds')
        for lane in 1, 2, 1:
            moved = service.ask('move', 'moved', str(lane))
            self.assertEqual(moved.returncode, 0, moved.stdout + moved.stderr)
            self.await_rounds(ranks[1], ROUNDS)
            self.await_rounds(ranks[0], 2)
        self.check_killed(ranks)

    def test_parameters_stay_equal_while_the_coordinator_is_killed_and_starts_again(self):
        ranks = self.start('restarted', 20, 'tcp', 1000000)
        self.await_rounds(ranks[0], 2)
        for number in 1, 2:
            service.serve.kill()
            self.await_rounds(ranks[1], 40)
            self.await_rounds(ranks[0], 2)      # the straggler receives parameters meanwhile
            service.start(f'serve-{number}')
            moved = service.ask('move', 'restarted', str(number))
            self.assertEqual(moved.returncode, 0, moved.stdout + moved.stderr)
            self.await_rounds(ranks[1], 40)
            self.await_rounds(ranks[0], 2)
        self.check_killed(ranks)

    def test_a_broadcast_after_the_first_round_is_refused(self):
        with gradpool.connect(service.endpoint) as client:
            spec = binding.JobSpec(b'alone', 0, 1)
            spec.backup = binding.BackupSpec(1, 1, 0, 2**32 - 1)
            job, tensor, request = (ctypes.c_void_p() for _ in range(3))
            lib, at, values = binding.lib, ctypes.byref, (ctypes.c_float * 4)()
            declared = binding.TensorSpec(name=b't', dtype=1, elements=4, rule=1)
            settings = binding.Settings(rate=1)
            with client._using() as handle:
                self.assertEqual(lib.gp_job_join(handle, at(spec), at(job)), 0)
                self.assertEqual(lib.gp_tensors_declare(job, at(declared), 1, at(tensor)), 0)
                self.assertEqual(lib.gp_broadcast(tensor, values, 0, at(request)), 0)
                self.assertEqual(lib.gp_wait(request, 0), 0)
                pushed = lib.gp_update(tensor, values, values, at(settings), at(request))
                self.assertEqual(pushed, 0)
                self.assertEqual(lib.gp_wait(request, 0), -errno.EDEADLK)
                ended = lib.gp_round_end(job, ctypes.c_double(0), 0, None)
                self.assertEqual((ended, lib.gp_wait(request, 0)), (0, 0))
                refused = lib.gp_broadcast(tensor, values, 0, at(request))
                self.assertEqual(refused, -errno.EOPNOTSUPP)
                self.assertIn("tensor 't': a job with backup workers broadcasts, saves and "
                              "restores before its first round only",
                              lib.gp_last_error().decode())
                lib.gp_job_leave(job)

    def test_a_lost_rank_ends_the_job_of_all(self):
        """All survivors must end at once. On a busy host the coordinator may first detect the
        end of a survivor."""
        ranks = self.start('lost', 5, 'shm', 1000000)
        harness.until(lambda: all(rank.text() for rank in ranks), 'each rank has ended rounds')
        ranks[1].child.kill()
        for number, other in (0, 2), (2, 0):
            self.assertEqual(ranks[number].wait(), 1)
            lines = ranks[number].text().splitlines()
            self.assertRegex(lines[0] + lines[-1], f'rank (1|{other}) ')

    def test_parameters_are_equal_at_every_round_over_shared_memory(self):
        self.run_over('shm')

    def test_parameters_are_equal_at_every_round_over_tcp(self):
        self.run_over('tcp')


if __name__ == '__main__':
    tap.main()
