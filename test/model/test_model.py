"""Searches models of protocols completely with spin, and checks that each planted mistake is found.
shm_sleep.pml: in no state a thread sleeps while it has work (W8). move.pml: a task moves while two
workers train, and any process may be lost (M1 to M10 of migrator). backup.pml: rounds that close
without their stragglers (W13, W22). gradients.pml: rounds with several gradients of a worker (A125,
A126). leave.pml: a worker leaves with an open round (W5, A44).
replica.pml: a copy of a table is promoted (A127 to A132).
GRADPOOL_TEST_LONG searches deeper."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import tap

HERE = pathlib.Path(__file__).parent
IS_LONG = 'GRADPOOL_TEST_LONG' in os.environ
# tcc compiles a model in a tenth of the time of gcc -O0, and the program searches as fast. Only the
# long searches take longer than an optimized compilation. -w: binary logarithm of the number of
# slots for states; pan's default needs 128 MiB, and a search would touch most of its pages.
SHORT, SHORT_SEARCH = (['tcc'] if shutil.which('tcc') else ['gcc', '-O0']), ['-w20']
LONG, LONG_SEARCH = ['gcc', '-O2', '-DCOLLAPSE'], []


def search(model, *defines):
    """Returns the errors that spin found, and the number of states."""
    with tempfile.TemporaryDirectory(prefix='gradpool-model-') as folder:
        def run(*command):
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise AssertionError(f'{command[0]}: {done.stdout}{done.stderr}')
            return done.stdout

        run('spin', *[f'-D{name}' for name in defines], '-a', str(HERE / model))
        run(*(LONG if IS_LONG else SHORT), '-w', '-DSAFETY', '-o', 'pan', 'pan.c')
        said = run('./pan', '-m100000', *(LONG_SEARCH if IS_LONG else SHORT_SEARCH))
    if 'errors: 0' in said and ('Search not completed' in said or 'max search depth' in said):
        raise AssertionError(said)
    return (int(re.search(r'errors: (\d+)', said)[1]),
            int(re.search(r'(\d+) states, stored', said)[1]))


class Protocol(unittest.TestCase):

    def holds(self, model, *defines, states=1000):
        errors, seen = search(model, *defines)
        print(f'# {model} {" ".join(defines)}: {seen} states')
        self.assertEqual(errors, 0)
        self.assertGreater(seen, states)

    def is_found(self, model, *defines):
        self.assertEqual(search(model, *defines)[0], 1)


HAVE_SPIN = shutil.which('spin') and shutil.which('gcc')


@unittest.skipUnless(HAVE_SPIN, 'spin or gcc is not installed')
class SleepProtocol(Protocol):

    def test_no_process_sleeps_while_a_record_waits(self):
        self.holds('shm_sleep.pml')

    def test_a_waker_without_a_fence_is_found(self):
        self.is_found('shm_sleep.pml', 'WITHOUT_WAKER_FENCE')

    def test_a_sleeper_without_a_fence_is_found(self):
        self.is_found('shm_sleep.pml', 'WITHOUT_SLEEPER_FENCE')

    def test_a_sleeper_that_does_not_look_again_is_found(self):
        self.is_found('shm_sleep.pml', 'WITHOUT_SECOND_LOOK')

    def test_a_futex_value_read_after_the_second_look_is_found(self):
        self.is_found('shm_sleep.pml', 'VALUE_READ_LATE')


@unittest.skipUnless(HAVE_SPIN, 'spin or gcc is not installed')
class MoveProtocol(Protocol):

    def test_a_task_that_moves_and_returns_is_applied_once_a_round(self):
        self.holds('move.pml', 'MOVES=2', 'FAULTS=0', states=100000)

    def test_every_worker_gets_every_result_after_any_loss_during_a_move(self):
        self.holds('move.pml', 'MOVES=1', 'FAULTS=1', states=100000)

    @unittest.skipUnless(IS_LONG, 'takes minutes')
    def test_every_worker_gets_every_result_after_any_loss_during_a_move_and_its_return(self):
        self.holds('move.pml', 'MOVES=2', 'FAULTS=1', states=10000000)

    @unittest.skipUnless(IS_LONG, 'takes minutes')
    def test_two_losses_during_a_move_lose_no_result(self):
        self.holds('move.pml', 'MOVES=1', 'FAULTS=2', states=1000000)

    def test_a_source_that_skips_its_tombstone_is_found(self):
        self.is_found('move.pml', 'MOVES=1', 'FAULTS=0', 'NO_TOMBSTONE')

    def test_a_worker_that_writes_over_its_memory_before_the_commit_is_found(self):
        self.is_found('move.pml', 'MOVES=1', 'FAULTS=1', 'RESULT_IS_COMMIT')

    def test_an_epoch_that_is_not_raised_is_found(self):
        self.is_found('move.pml', 'MOVES=2', 'FAULTS=0', 'EPOCH_NOT_RAISED')


@unittest.skipUnless(HAVE_SPIN, 'spin or gcc is not installed')
class BackupProtocol(Protocol):

    def test_one_set_makes_a_round_of_all_tensors_and_parameters_are_of_one_round(self):
        self.holds('backup.pml', 'ROUNDS=3', states=100000)

    def test_a_dead_leader_lane_decides_no_second_set(self):
        self.holds('backup.pml', 'ROUNDS=2', 'FAULTS=1', states=100000)

    def test_an_awaited_worker_gets_the_round_that_it_takes(self):
        self.holds('backup.pml', 'ROUNDS=3', 'PATIENT', states=100000)

    @unittest.skipUnless(IS_LONG, 'takes minutes')
    def test_two_leader_lanes_in_a_row_decide_no_second_set(self):
        self.holds('backup.pml', 'ROUNDS=2', 'FAULTS=2', states=1000000)

    @unittest.skipUnless(IS_LONG, 'takes minutes')
    def test_a_leader_lane_may_die_in_any_of_three_rounds(self):
        self.holds('backup.pml', 'ROUNDS=3', 'FAULTS=1', states=1000000)

    def test_a_worker_that_steps_itself_misses_no_sum(self):
        self.holds('backup.pml', 'ROUNDS=3', 'SUMS', 'LAG=1', states=10000)
        self.holds('backup.pml', 'ROUNDS=3', 'SUMS', 'LAG=2', states=10000)

    def test_a_dead_leader_lane_loses_no_sum(self):
        self.holds('backup.pml', 'ROUNDS=2', 'SUMS', 'FAULTS=1', states=10000)

    @unittest.skipUnless(IS_LONG, 'takes minutes')
    def test_a_leader_lane_that_dies_in_any_of_three_rounds_loses_no_sum(self):
        self.holds('backup.pml', 'ROUNDS=3', 'SUMS', 'FAULTS=1', states=100000)

    def test_a_worker_may_give_up_the_gradient_of_a_closed_round(self):
        self.holds('backup.pml', 'ROUNDS=2', 'INTERRUPT', states=100000)
        self.holds('backup.pml', 'ROUNDS=3', 'INTERRUPT', 'INTERRUPTS=1', 'SUMS', states=100000)

    def test_a_gradient_given_up_for_a_dead_leader_lane_is_computed_again(self):
        self.holds('backup.pml', 'ROUNDS=2', 'INTERRUPT', 'INTERRUPTS=1', 'SUMS', 'FAULTS=1',
                   'FAULTS_PASSED', states=100000)

    @unittest.skipUnless(IS_LONG, 'takes a minute')
    def test_all_workers_may_give_up_gradients_of_a_dead_leader_lane(self):
        self.holds('backup.pml', 'ROUNDS=3', 'INTERRUPT', 'SUMS', 'LAG=2', states=1000000)
        self.holds('backup.pml', 'ROUNDS=2', 'INTERRUPT', 'SUMS', 'FAULTS=1', states=1000000)

    def test_a_given_up_gradient_that_counts_is_found(self):
        self.is_found('backup.pml', 'ROUNDS=2', 'INTERRUPT', 'SUMS', 'FAULTS=1', 'COUNTS_GIVEN_UP')

    def test_a_given_up_gradient_that_a_new_leader_lane_does_not_hear_of_is_found(self):
        self.is_found('backup.pml', 'ROUNDS=2', 'INTERRUPT', 'SUMS', 'FAULTS=1', 'GIVES_UP_ONCE')

    def test_a_worker_that_goes_on_behind_an_open_round_is_found(self):
        self.is_found('backup.pml', 'ROUNDS=2', 'INTERRUPT', 'SUMS', 'FAULTS=1', 'GOES_ON_OPEN')

    def test_a_worker_that_skips_sums_is_found(self):
        self.is_found('backup.pml', 'ROUNDS=3', 'SUMS', 'LAG=2', 'SKIPS_SUMS')

    def test_a_close_that_overwrites_a_missing_sum_is_found(self):
        self.is_found('backup.pml', 'ROUNDS=3', 'SUMS', 'WAITS_LATE')

    def test_a_new_leader_lane_that_takes_ended_rounds_for_held_ones_is_found(self):
        self.is_found('backup.pml', 'ROUNDS=3', 'SUMS', 'FAULTS=1', 'HOLDS_ENDED')

    def test_a_word_before_its_set_is_found(self):
        self.is_found('backup.pml', 'WORD_BEFORE_SET')

    def test_a_leader_lane_that_decides_before_all_records_arrived_is_found(self):
        self.is_found('backup.pml', 'ROUNDS=2', 'FAULTS=1', 'DECIDES_EARLY')

    def test_a_taker_served_from_a_later_round_is_found(self):
        self.is_found('backup.pml', 'SERVES_NEWEST')

    def test_a_wait_that_begins_a_round_too_late_is_found(self):
        self.is_found('backup.pml', 'HOLDS_LATE')

    def test_a_report_before_the_last_answer_is_found(self):
        self.is_found('backup.pml', 'REPORTS_EARLY')

    def test_a_round_held_before_its_last_tensor_is_found(self):
        self.is_found('backup.pml', 'LANDED_EARLY')


@unittest.skipUnless(HAVE_SPIN, 'spin or gcc is not installed')
class GradientsProtocol(Protocol):

    def test_a_round_counts_whole_gradients_and_parameters_stay_meanwhile(self):
        self.holds('gradients.pml', 'ROUNDS=3', states=10000)

    def test_a_dead_leader_lane_counts_no_other_gradients(self):
        self.holds('gradients.pml', 'ROUNDS=2', 'FAULTS=1', states=10000)

    def test_a_lane_that_reads_more_slots_than_the_set_counts_is_found(self):
        self.is_found('gradients.pml', 'READS_ALL_SLOTS')

    def test_a_gradient_announced_before_its_slot_is_complete_is_found(self):
        self.is_found('gradients.pml', 'ANNOUNCES_EARLY')

    def test_a_gradient_counted_after_the_close_is_found(self):
        self.is_found('gradients.pml', 'COUNTS_LATE')

    def test_a_result_copied_during_another_gradient_is_found(self):
        self.is_found('gradients.pml', 'COPIES_EARLY')

    def test_a_second_gradient_of_a_closed_round_in_the_next_round_is_found(self):
        self.is_found('gradients.pml', 'ANNOUNCES_CLOSED')

    def test_a_leader_lane_that_decides_before_all_announcements_arrived_is_found(self):
        self.is_found('gradients.pml', 'ROUNDS=2', 'FAULTS=1', 'DECIDES_EARLY')


@unittest.skipUnless(HAVE_SPIN, 'spin or gcc is not installed')
class LeaveProtocol(Protocol):

    def test_all_workers_have_the_results_of_a_worker_that_left(self):
        self.holds('leave.pml', 'ROUNDS=2', states=100000)

    @unittest.skipUnless(IS_LONG, 'takes minutes')
    def test_a_worker_leaves_in_any_of_three_rounds(self):
        self.holds('leave.pml', 'ROUNDS=3', states=1000000)

    @unittest.skipUnless(IS_LONG, 'takes minutes')
    def test_all_workers_have_the_results_of_a_worker_that_left_a_lost_lane(self):
        self.holds('leave.pml', 'ROUNDS=2', 'FAULTS=1', states=1000000)

    @unittest.skipUnless(IS_LONG, 'takes minutes')
    def test_a_reported_round_does_not_wait_for_a_stopped_worker(self):
        self.holds('leave.pml', 'ROUNDS=2', 'STOPS', states=1000000)

    def test_a_leave_without_the_commit_of_its_last_round_is_found(self):
        self.is_found('leave.pml', 'ROUNDS=2', 'MOVES_ON')

    def test_an_unsent_commit_in_the_place_of_an_announcement_is_found(self):
        self.is_found('leave.pml', 'ROUNDS=3', 'KEEPS_COMMIT')

    def test_a_report_of_a_round_that_is_not_committed_is_found(self):
        self.is_found('leave.pml', 'ROUNDS=2', 'REPORTS_KEPT')

    def test_a_round_repeated_without_a_report_is_found(self):
        self.is_found('leave.pml', 'ROUNDS=2', 'WITHOUT_REPORT')

    def test_a_report_that_is_compared_with_one_of_two_announcements_is_found(self):
        self.is_found('leave.pml', 'ROUNDS=3', 'EARLIEST_ALONE')

    def test_a_reported_round_that_waits_for_a_stopped_worker_is_found(self):
        self.is_found('leave.pml', 'ROUNDS=2', 'STOPS', 'WAITS_FOR_ALL')


@unittest.skipUnless(HAVE_SPIN, 'spin or gcc is not installed')
class ReplicaProtocol(Protocol):

    def test_a_promoted_copy_has_every_acknowledged_push_once(self):
        self.holds('replica.pml', states=100000)

    def test_a_word_before_the_log_has_landed_is_found(self):
        self.is_found('replica.pml', 'WORD_BEFORE_LOG')

    def test_a_promotion_before_the_fence_is_found(self):
        self.is_found('replica.pml', 'PROMOTES_BEFORE_FENCE')

    def test_a_promotion_of_a_copy_that_lags_is_found(self):
        self.is_found('replica.pml', 'PROMOTES_LAGGING')

    def test_rows_that_are_applied_without_their_progress_are_found(self):
        self.is_found('replica.pml', 'WITHOUT_PROGRESS')

    def test_a_copy_that_is_reported_before_its_end_is_found(self):
        self.is_found('replica.pml', 'WHOLE_EARLY')


if __name__ == '__main__':
    tap.main()
