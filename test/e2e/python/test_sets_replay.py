"""Records the sets of a job with backup workers on a real service, and replays them with ranks of
other speeds. The gradients depend on the rank and on the number of its gradients so far, also of
dropped ones, so parameters have the same bits only if each rank computes the same gradients with
the same parameters."""
import concurrent.futures
import errno
import os
import pathlib
import signal
import sys
import tempfile
import time

import gradpool
import harness
import python_case
import ranks
from python_case import setUpModule, tearDownModule  # noqa: F401
from test_backup_rules import ATTEMPTS, End, no_loss, noisy, SLOW, Trained, Worker, WORKERS

ROUNDS = 40
FAST_S, SLOW_S = 0.001, 0.02
RECORDED = [SLOW_S if rank == SLOW else FAST_S for rank in range(WORKERS)]
REPLAYED = [SLOW_S if rank == 0 else FAST_S for rank in range(WORKERS)]


class Replays(Trained):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.first, self.second = (pathlib.Path(folder.name) / name for name in ('first', 'second'))

    def run_job(self, name, times, is_sum=False, **files):
        """Runs ROUNDS rounds. `times`: seconds for each gradient, by rank."""
        backup = gradpool.Backup('static:2', **files)
        each = [Worker(self, f"{self.id().rsplit('.', 1)[-1]} {name}", rank, WORKERS,
                       backup=backup) for rank in range(WORKERS)]
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            runs = [pool.submit(self.run_rank, one, times[one.rank], is_sum) for one in each]
            self.disturb(each, runs)
            for run in runs:
                run.result()
        self.check_equal(each)
        return each

    def disturb(self, each, runs):
        """Does nothing; a test may replace this method."""

    @staticmethod
    def run_rank(one, time_s, is_sum):
        if not is_sum:
            return one.run(ROUNDS, noisy, time_s, no_loss)
        end = End()
        end.last = ROUNDS

        def slowly(rank, body):
            time.sleep(time_s)
            return noisy(rank, body)
        return one.run_sums(slowly, end)

    @staticmethod
    def lines_of(path):
        """Returns the rounds of a recording without reasons, times and checksums, and the lines of
        stragglers without their order. A straggler of the last round computes no further gradient,
        and rank 0 may have left before this straggler has the results of that round."""
        words = [line.split() for line in path.read_text(encoding='ascii').splitlines()[1:]]
        return ([(line[1], line[4]) for line in words if line[0] == 'round'],
                sorted((line[1], line[2]) for line in words
                       if line[0] == 'took' and int(line[1]) < ROUNDS))

    def check_same(self, first, second):
        for one, other in zip(first, second):
            self.assertEqual(one.parameters, other.parameters)
            self.assertEqual([end.number for end in one.ends], [end.number for end in other.ends])
            self.assertEqual([end.is_dropped for end in one.ends],
                             [end.is_dropped for end in other.ends])

    def run_twice(self, is_sum):
        first = self.run_job('recorded', RECORDED, is_sum, record=self.first)
        self.assertGreater(first[SLOW].missed(), 0)
        second = self.run_job('replayed', REPLAYED, is_sum, replay=self.first, record=self.second)
        self.check_same(first, second)
        self.assertEqual(self.lines_of(self.first), self.lines_of(self.second))

    def test_a_replayed_job_has_the_same_bits(self):
        self.run_twice(False)

    def test_a_replayed_job_whose_ranks_step_has_the_same_bits(self):
        self.run_twice(True)

    def test_the_variables_name_the_files(self):
        first = self.run_job('plain', RECORDED, record=self.first)
        os.environ.update(GRADPOOL_SETS_REPLAY=str(self.first),
                          GRADPOOL_SETS_RECORD=str(self.second))
        self.addCleanup(os.environ.pop, 'GRADPOOL_SETS_REPLAY')
        self.addCleanup(os.environ.pop, 'GRADPOOL_SETS_RECORD')
        self.check_same(first, self.run_job('named', REPLAYED))
        self.assertEqual(self.lines_of(self.first), self.lines_of(self.second))

    def kill_lanes(self, each, runs):
        for pid in python_case.service.pids():
            self.await_rounds(each, 5, runs)
            os.kill(pid, signal.SIGKILL)
            harness.until(lambda pid=pid: pid not in python_case.service.pids() and
                          len(python_case.service.pids()) == 2, 'a new aggregator is there')

    def test_a_killed_leader_lane_changes_no_bit_of_a_replay(self):
        """Without replicas a lane may die with a mean that a rank lacks. The job then ends, so one
        of several jobs must go on."""
        first = self.run_job('recorded', RECORDED, True, record=self.first)
        self.disturb = self.kill_lanes
        for attempt in range(ATTEMPTS):
            try:
                second = self.run_job(f'killed {attempt}', REPLAYED, True, replay=self.first)
                break
            except gradpool.GradpoolError as error:
                if error.errno != errno.EOWNERDEAD or attempt == ATTEMPTS - 1:
                    raise
        for one, other in zip(first, second):
            self.assertEqual(one.parameters, other.parameters)

    def test_after_the_end_of_a_recording_the_rule_goes_on(self):
        first = self.run_job('recorded', RECORDED, record=self.first)
        lines = self.first.read_text(encoding='ascii').splitlines(keepends=True)
        self.first.write_text(''.join(lines[:len(lines) // 2]), encoding='ascii')
        last = int(self.lines_of(self.first)[0][-1][0])
        self.assertTrue(0 < last < ROUNDS)
        second = self.run_job('replayed', REPLAYED, replay=self.first)
        known = {number: parameters for one in first
                 for number, parameters in one.parameters.items()}
        compared = 0
        for one in second:
            for number, parameters in one.parameters.items():
                if number <= last and number in known:
                    self.assertEqual(parameters, known[number], number)
                    compared += 1
        self.assertGreaterEqual(compared, last)

    def test_a_recording_of_another_number_of_ranks_is_refused_on_every_rank(self):
        self.run_job('recorded', RECORDED, record=self.first)
        client = gradpool.connect()
        self.addCleanup(client.close)
        for rank in range(3):
            with self.assertRaisesRegex(gradpool.Mismatch, "job 'three' has 3 workers, and the "
                                        'recording .*first is of 4') as caught:
                client.join('three', rank, 3, durability='none',
                            backup=gradpool.Backup('static:2', replay=self.first))
            self.assertEqual(caught.exception.errno, errno.EINVAL)

    def test_ranks_with_different_files_are_refused(self):
        client = gradpool.connect()
        self.addCleanup(client.close)
        client.join('mixed', 0, 2, durability='none',
                    backup=gradpool.Backup('static:2', record=self.first))
        with self.assertRaisesRegex(gradpool.Mismatch, 'static, .*, GRADPOOL_SETS_RECORD; rank 1 '
                                    'requested static, '):
            client.join('mixed', 1, 2, durability='none', backup='static:2')


if __name__ == '__main__':
    sys.setswitchinterval(0.001)
    ranks.main(globals())
