"""Tests late ranks of a tensor whose rounds need two ranks, with a real service over TCP. A late
rank is stopped repeatedly, even while it receives a result. This must delay no round of the other
ranks. All elements of a result must belong to the round that the lane has named, even while the
pieces move between two lanes. GRADPOOL_TEST_LONG runs 400 pulls."""
import os
import random
import signal
import statistics
import time
import unittest

import harness
import progress
import tap

LATE_RANK = harness.BUILD / 'test' / 'e2e' / 'late_rank'
PULLS = 400 if os.environ.get('GRADPOOL_TEST_LONG') else 16
SEED = 20261130
STOP_S = 0.16
RUN_S = 0.01, 0.15      # time for which the late rank runs between two stops
CONTROL = 30            # number of rounds that are measured while the late rank is not stopped
LONG_STOPS, ROUNDS = 4, 12
MOVES = 4


class Rank(harness.Process):
    """A process of tools/late_rank.c."""

    def pushes(self):
        """Returns start, end, round and number of wrong elements of each push."""
        lines = self.text().split('\n')[:-1]
        if any(line.startswith('failed') for line in lines):
            raise AssertionError(f'{self.name}: {self.tail()}')
        numbers = [line.split() for line in lines if line[:1].isdigit()]
        return [(float(began), float(ended), int(number), int(false))
                for began, ended, number, false in numbers]

    def await_pushes(self, count):
        harness.until(lambda: len(self.pushes()) >= count or self.child.poll() is not None,
                      f'{self.name} ends {count} pushes', process=self)
        if len(self.pushes()) < count:
            raise AssertionError(f'{self.name} ended:\n{self.tail()}')


def percentile_99(times):
    return statistics.quantiles(times, n=100, method='inclusive')[-1]


class LateRanks(unittest.TestCase):
    def start(self, ranks, aggregators=1):
        service = self.service = harness.Service('--scale', 'off', '--lanes-per-core', 1,
                                                 aggregators=aggregators)
        self.addCleanup(service.end)
        self.targets = [a['lanes'][0]['lane'] for a in service.status()['aggregators']]
        self.moved = 0          # number of moves that have ended
        path = service.folder / 'rounds'
        path.write_bytes(bytes(4096))
        self.ranks = []
        for number in range(ranks):
            rank = Rank([LATE_RANK, service.endpoint, number, ranks, path], service.folder,
                        f'rank-{number}', {'GRADPOOL_TRANSPORT': 'tcp'})
            self.addCleanup(rank.kill)
            self.ranks.append(rank)
            service.children.append(rank)
        for rank in self.ranks:
            rank.await_pushes(2)    # connections and buffers exist

    def more_rounds(self, count):
        """Waits for further rounds of the ranks that are not late."""
        least = len(self.ranks[0].pushes()) + count
        for rank in self.ranks[:2]:
            rank.await_pushes(least)

    def stop(self, rank):
        rank.signal(signal.SIGSTOP)
        began = time.monotonic()
        time.sleep(STOP_S)      # the stop of this length is the fault that the case tests
        rank.signal(signal.SIGCONT)
        return began, time.monotonic()

    def stop_and_move(self, rank, number):
        """Stops the rank while the pieces move to the next lane. On a busy host a move may fail,
        because the rank has not answered in time."""
        target = self.targets[number % len(self.targets)]
        mover = harness.Process([harness.GRADPOOL, 'move', 'late', target, '--endpoint',
                                 f'unix:{self.service.state}/control.sock'],
                                self.service.folder, f'move-{number}')
        self.addCleanup(mover.kill)
        stop = self.stop(rank)
        self.moved += mover.wait() == 0
        return stop

    def stop_until(self, pulls, moves=False):
        """Stops the late ranks alternately, until each has received `pulls` results and, with
        `moves`, at least MOVES moves have ended. Returns start and end of each stop."""
        draw, late, stops = random.Random(SEED), self.ranks[2:], []
        wanted = [len(rank.pushes()) + pulls for rank in late]
        patience = progress.Patience(harness.WAIT_S, size=lambda: sum(r.size() for r in late))
        while (moves and self.moved < MOVES) or any(
                len(rank.pushes()) < least for rank, least in zip(late, wanted)):
            self.assertFalse(patience.is_over(), 'the late ranks receive no result any more')
            time.sleep(draw.uniform(*RUN_S))
            rank = late[len(stops) % len(late)]
            stops.append(self.stop_and_move(rank, len(stops)) if moves else self.stop(rank))
        return stops

    def rounds_between(self, began, ended):
        """Returns the durations of the rounds of the ranks that are not late."""
        return [push[1] - push[0] for rank in self.ranks[:2] for push in rank.pushes()
                if began <= push[1] < ended]

    def rate(self, times):
        """Returns the number of rounds per second that end between these times."""
        return sum(len(self.rounds_between(*time)) for time in times) / \
            sum(ended - began for began, ended in times)

    def check_values(self):
        for rank in self.ranks:
            false = [push for push in rank.pushes() if push[3] > 0]
            self.assertEqual(false, [], f'{rank.name}: results that are not of one round')

    def test_a_late_rank_that_is_stopped_again_and_again_gets_whole_results(self):
        self.start(3)
        control_began = time.monotonic()
        self.more_rounds(CONTROL)
        control = control_began, time.monotonic()
        stops = self.stop_until(PULLS)
        self.check_values()
        self.compare(control, stops)

    def test_of_two_late_ranks_that_are_stopped_in_turn_each_gets_whole_results(self):
        self.start(4)
        self.stop_until(PULLS // 2)
        self.check_values()

    def test_late_ranks_get_whole_results_while_their_pieces_move(self):
        self.start(4, aggregators=2)
        stops = self.stop_until(PULLS // 2, moves=True)
        self.check_values()
        tap.emit(f'# {len(stops)} stops, {self.moved} moves, '
                 f'{sum(len(rank.pushes()) for rank in self.ranks[2:])} pushes of late ranks')

    def compare(self, control, stops):
        """Checks that rounds continue while the late rank is stopped. Other processes may use the
        cores at any time. So the rate during stops is compared with the rate before the stops or
        between them, whichever is lower. Durations are only printed; the next case tests without
        times."""
        calm = self.rounds_between(*control)
        busy = self.rounds_between(stops[0][0], stops[-1][1])
        between = [(before[1], after[0]) for before, after in zip(stops, stops[1:])]
        least = min(self.rate([control]), self.rate(between))
        share = self.rate(stops) / max(least, 1)
        calm_p99, busy_p99 = percentile_99(calm), percentile_99(busy)
        tap.emit(f'# rounds: median {statistics.median(calm) * 1e3:.0f} ms, p99 '
                 f'{calm_p99 * 1e3:.0f} ms; with {len(stops)} stops median '
                 f'{statistics.median(busy) * 1e3:.0f} ms, p99 {busy_p99 * 1e3:.0f} ms; '
                 f'{share:.2f} of the rate without a stop')
        self.assertGreater(share, 0.25)

    def test_a_late_rank_that_stays_stopped_delays_no_round(self):
        self.start(3)
        draw, late = random.Random(SEED), self.ranks[2]
        for _ in range(LONG_STOPS):
            time.sleep(draw.uniform(*RUN_S))
            late.signal(signal.SIGSTOP)
            self.more_rounds(ROUNDS)
            late.signal(signal.SIGCONT)
            late.await_pushes(len(late.pushes()) + 2)
        self.check_values()


if __name__ == '__main__':
    tap.main()
