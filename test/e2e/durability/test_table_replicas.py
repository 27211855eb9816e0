"""Kills aggregators with shards and copies of tables while two workers train. Training continues: a
BSP table has the bits of a replay after each clock, and no push of an SSP or ASP table is lost or
counts twice. Without a whole copy every rank receives an error that names the shards."""
import errno
import os
import pathlib
import random
import re
import signal
import time
import unittest

import numpy

import harness
import ranks
import gradpool

KEYS, DIM, RATE = 600, 4, 0.5
WAIT_MS = 60000
STEPS = re.compile(r'lane (\d+) has a whole copy of the tables on lane (\d+)'
                   r'|lost its copy of the tables on lane (\d+)'
                   r'|lane (\d+) serves the tables of lane (\d+)')
SEED = int(os.environ.get('GRADPOOL_TEST_SEED', '7'))


def gradient(rank, clock):
    """Whole numbers: their sums are exact in any order."""
    return numpy.full((KEYS, DIM), 1 + (rank + clock) % 3, numpy.float32)


def last_clock(folder, rank, clock):
    """Returns the clock at which all ranks stop; None: not known yet. Rank 0 chooses it some clocks
    ahead, because a rank of a BSP or SSP job is at most two clocks ahead of another rank."""
    chosen = folder / 'last'
    if rank == 0 and (folder / 'stop').exists() and not chosen.exists():
        (folder / 'chosen').write_text(str(clock + 6))
        (folder / 'chosen').rename(chosen)
    return int(chosen.read_text()) if chosen.exists() else None


def expected(ends):
    """Returns the value of each row after `ends[rank]` clocks of each rank."""
    return -RATE * sum(1 + (rank + clock) % 3 for rank, end in enumerate(ends)
                       for clock in range(end))


def rank_trains(rank, workers):
    """Trains until the test requests the end. Returns (clocks, rows that differ from their replay),
    or (kind, errno, text) of an error."""
    try:
        return train(rank, workers)
    except gradpool.GradpoolError as error:
        return type(error).__name__, error.errno, str(error)


def train(rank, workers):
    folder, consistency = pathlib.Path(os.environ['TEST_FOLDER']), os.environ['TEST_CONSISTENCY']
    job = gradpool.connect().join('replicas', rank, workers)
    if rank > 0 and 'TEST_LATE' in os.environ:
        harness.until((folder / 'late').exists, 'this rank may declare its tables')
    tables = [job.table(name, DIM, combine='sum', consistency=consistency, durability='replica')
              for name in ('first', 'second')]
    for table in tables:
        table.set(RATE)
    keys = numpy.arange(KEYS)
    (folder / f'trains.{rank}').touch()
    clock = wrong = 0
    while clock < (last_clock(folder, rank, clock) or clock + 1):
        for table in tables:
            rows = table.pull(keys)
            if consistency == 'bsp':
                wrong += int((rows != expected([clock] * workers)).sum())
            table.push(keys, gradient(rank, clock))
        job.clock()
        clock += 1
        time.sleep(0.002)
    (folder / f'end.{rank}').write_text(str(clock))
    job.barrier(WAIT_MS)
    ends = [int((folder / f'end.{one}').read_text()) for one in range(workers)]
    wrong += sum(int((table.pull(keys) != expected(ends)).sum()) for table in tables)
    job.barrier(WAIT_MS)
    job.leave()
    return clock, wrong


class TableReplicas(unittest.TestCase):
    def start(self, consistency, aggregators=3, transport='shm', workers=2, **environment):
        self.kills = 0
        self.random = random.Random(f'{SEED} {self.id()}')
        self.service = harness.Service(aggregators=aggregators)
        self.addCleanup(self.service.end)
        self.folder = self.service.folder
        self.processes = ranks.start_ranks(
            'rank_trains', workers, GRADPOOL_ENDPOINT=self.service.endpoint,
            GRADPOOL_TRANSPORT=transport, TEST_FOLDER=str(self.folder),
            TEST_CONSISTENCY=consistency, **environment)
        self.addCleanup(lambda: [p.kill() for p in self.processes])
        first = 1 if 'TEST_LATE' in environment else workers
        self.await_ranks(lambda: len(list(self.folder.glob('trains.*'))) == first,
                         'every rank trains')

    def await_ranks(self, condition, what):
        harness.until(lambda: condition() or any(p.poll() is not None for p in self.processes),
                      what, process=self.service.serve)

    def lanes(self):
        """Returns {aggregator: [its lanes]} of the aggregators that are up."""
        return {a['pid']: [lane['lane'] for lane in a['lanes']] for a in self.service.serving('up')}

    def copies(self):
        """Returns {owner: replica lane} from the log of the service; None: no whole copy."""
        found = {}
        for replica, owner, lost, new, former in STEPS.findall(self.service.serve.text()):
            if owner:
                found[int(owner)] = int(replica)
            elif lost:
                found[int(lost)] = None
            else:
                found.pop(int(former), None)
                found[int(new)] = None
        return found

    def await_copies(self):
        """Waits until each lane with shards has a whole copy. At first two lanes have shards."""
        def are_whole():
            copies = self.copies()
            return None not in copies.values() and len(copies) >= (1 if self.kills else 2)
        self.await_ranks(are_whole, lambda: f'all copies are whole: {self.copies()}')
        return self.copies()

    def kill_lane(self, lane):
        """Kills the aggregator of the lane at a random moment."""
        pid = next(pid for pid, lanes in self.lanes().items() if lane in lanes)
        time.sleep(self.random.random() * 0.05)
        os.kill(pid, signal.SIGKILL)
        self.await_ranks(lambda: f'local aggregator with pid {pid} has ended' in
                         self.service.serve.text(), f'the coordinator handles the end of {pid}')
        self.kills += 1

    def finish(self):
        (self.folder / 'stop').touch()
        found = ranks.finish_ranks(self.processes)
        self.assertEqual([wrong for _, *wrong in found], [[0]] * len(found), found)

    def check_kills(self, consistency, transport='shm', kills=3):
        """Kills owners and replica lanes, each when all copies are whole."""
        self.start(consistency, transport=transport)
        for kill in range(kills):
            copies = self.await_copies()
            owner = self.random.choice(sorted(copies))
            self.kill_lane(copies[owner] if kill == 1 else owner)
        self.await_copies()
        self.assertIn('has a whole copy of its tables and continues', self.service.serve.text())
        self.finish()

    def test_bsp_has_the_same_bits_after_lost_owners(self):
        self.check_kills('bsp')

    def test_bsp_has_the_same_bits_over_tcp(self):
        self.check_kills('bsp', 'tcp')

    def test_no_push_of_ssp_is_lost_or_doubled(self):
        self.check_kills('ssp:1', kills=2)

    def test_no_push_of_asp_is_lost_or_doubled_over_tcp(self):
        self.check_kills('asp', 'tcp', kills=2)

    def test_a_rank_may_declare_its_tables_after_a_promotion(self):
        self.start('bsp', TEST_LATE='1')
        self.kill_lane(min(self.await_copies()))
        self.await_copies()
        (self.folder / 'late').touch()
        self.finish()

    def test_without_owner_and_copy_every_rank_receives_an_error(self):
        self.start('bsp')
        copies = self.await_copies()
        owner = min(copies)
        pids = [pid for pid, lanes in self.lanes().items() if {owner, copies[owner]} & set(lanes)]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for kind, number, text in ranks.finish_ranks(self.processes):
            self.assertEqual((kind, number), ('GradpoolError', errno.EOWNERDEAD), text)
            self.assertRegex(text, r"table '(first|second)'.* shards? \d.*"
                                   r"(was lost before it served the rows|no whole copy yet)")


if __name__ == '__main__':
    ranks.main(globals())
