"""Tests snapshots of jobs with tables: one file contains tensors and all rows of one clock. A job
on another service continues from this file with the same bits."""
import concurrent.futures
import errno
import json
import pathlib
import threading
import unittest

import numpy

import harness
import ranks  # noqa: F401  sets GRADPOOL_LIBRARY: before gradpool
import tap
import gradpool
import gradpool.stages as stage_calls
from harness import Service
from test_outputs import validate

DIM, SIZE = 3, 1000
KEYS = numpy.arange(900)
TABLES = {'users': dict(rule='adam', combine='sum', initial=('normal', 0.1), seed=7),
          'items': dict(rule='adagrad', combine='sum', initial=0.5, dtype='float16')}


def gradients(rank, clock, count):
    return numpy.random.default_rng(rank + 10 * clock).normal(size=(count, DIM)).astype('f')


class Snapshots(unittest.TestCase):
    def serve(self, *options):
        self.service = Service('--scale', 'off', *options)
        self.addCleanup(self.service.end)
        self.path = pathlib.Path(self.service.folder) / 'snapshot'

    def each(self, function, *arguments):
        """Runs function(rank, ...) at the same time in all ranks. Raises the first error."""
        with concurrent.futures.ThreadPoolExecutor(len(self.jobs)) as pool:
            going = [pool.submit(function, rank, *arguments) for rank in range(len(self.jobs))]
            return [one.result() for one in going]

    def join(self, name, transport='shm', workers=2, tables=TABLES, dense=None):
        client = gradpool.connect(self.service.endpoint, transport)
        self.addCleanup(client.close)
        self.jobs = [client.join(name, rank, workers) for rank in range(workers)]
        self.tables = self.each(lambda rank: {key: self.jobs[rank].table(key, DIM, **spec)
                                              for key, spec in tables.items()})
        for table in self.tables[0].values():
            table.set(lr=0.25)
        self.dense = dense and self.each(
            lambda rank: self.jobs[rank].declare('w', SIZE, rule=dense))
        self.values = [numpy.ones(SIZE, 'f') for _ in self.jobs]

    def begin(self):
        if self.dense:
            self.each(lambda rank: self.jobs[rank].broadcast(self.dense[rank],
                                                             self.values[rank]).wait())

    def train_rank(self, rank, clocks):
        for clock in clocks:
            if rank < 2:
                for table in self.tables[rank].values():
                    keys = numpy.arange(clock, 500 + 20 * clock, rank + 1)
                    table.push(keys, gradients(rank, clock, len(keys)))
            self.jobs[rank].clock()
            if self.dense:
                step = numpy.full(SIZE, clock if rank < 2 else 0, 'f')
                self.jobs[rank].update_group([(self.dense[rank], step, self.values[rank])], lr=0.1,
                                             **self.options).wait()

    def train(self, clocks):
        self.each(self.train_rank, clocks)

    def state(self):
        rows = [self.tables[0][name].pull(KEYS).tobytes() for name in sorted(self.tables[0])]
        return rows, self.values[0].tobytes() if self.dense else b''

    def snapshot(self):
        self.each(lambda rank: self.jobs[rank].snapshot(str(self.path)))

    def restore(self):
        self.each(lambda rank: self.jobs[rank].restore(
            str(self.path), {self.dense[rank]: self.values[rank]} if self.dense else None))

    def refuse(self, code, words, call):
        """Checks that a call fails on every rank, on the one with this text."""
        def run(rank):
            try:
                call(rank)
            except gradpool.GradpoolError as error:
                return error
            raise AssertionError(f'rank {rank}: no error')
        errors = self.each(run)
        self.assertEqual({error.errno for error in errors}, {code}, errors)
        self.assertTrue(any(words in str(error) for error in errors), errors)

    options = {'momentum': 0.9}


class Continued(Snapshots):
    def continue_elsewhere(self, before, after, dense=None):
        self.serve()
        self.join('first', before, dense=dense)
        self.begin()
        self.train(range(1, 11))
        self.snapshot()
        kept = self.path.read_bytes()
        self.train(range(11, 21))
        expected = self.state()
        self.service.end()
        self.serve('--lanes-per-core', 3)
        self.path.write_bytes(kept)
        self.join('second', after, workers=3 if dense is None else 2, dense=dense)
        self.restore()
        self.train(range(11, 21))
        self.assertEqual(self.state(), expected)

    def test_rows_continue_on_other_lanes_and_ranks_with_the_same_bits(self):
        self.continue_elsewhere('shm', 'shm')

    def test_rows_continue_by_tcp_with_the_same_bits(self):
        self.continue_elsewhere('tcp', 'tcp')

    def test_rows_and_tensors_continue_with_the_same_bits(self):
        self.continue_elsewhere('shm', 'shm', dense='momentum')

    def test_clocks_without_pushes_count_for_the_number_of_steps(self):
        self.serve()
        self.join('first')
        self.train(range(1, 3))
        for _ in range(3):
            for job in self.jobs:
                job.clock()
        self.snapshot()
        self.train([3])
        expected = self.state()
        self.join('second')
        for job in self.jobs:
            job.clock()     # a clock of the new job does not count as an update
        self.restore()
        self.train([3])
        self.assertEqual(self.state(), expected)

    def test_rows_of_asynchronous_tables_are_restored(self):
        self.serve()
        spec = {'users': dict(TABLES['users'], rule='sgd', initial=0, consistency='asp'),
                'items': dict(TABLES['items'], rule='sgd', initial=0, consistency='ssp:2')}
        self.join('first', tables=spec)
        self.train([1])
        self.jobs[0].clock()    # the ranks are in different clocks
        self.snapshot()
        expected = self.state()
        self.join('second', tables=spec)
        self.restore()
        self.assertEqual(self.state(), expected)


class Stages(Snapshots):
    def border(self, rank):
        limit_ms = harness.WAIT_S * 1000
        return stage_calls._Border(self.jobs[rank], limit_ms, limit_ms)

    def begin_stage(self, name, workers):
        entry = stage_calls._Entry({'name': name, 'workers': workers})
        self.each(lambda rank: self.border(rank).next(entry))

    def test_a_snapshot_is_taken_after_a_stage_with_an_idle_rank(self):
        self.serve()
        self.join('staged', tables={'users': dict(rule='sgd', combine='sum', initial=0)})
        self.begin_stage('narrow', 1)
        for clock in (1, 2):
            self.train_rank(0, [clock])
        self.refuse(errno.EPERM, "rank 1 is idle in stage 'narrow' of job 'staged'; declare the "
                    'tensor for the ranks of the stage, or push between stages',
                    lambda rank: self.jobs[rank].snapshot(str(self.path)))
        self.each(lambda rank: self.border(rank).end(False))
        self.snapshot()
        self.begin_stage('wide', 2)
        expected = self.state()
        self.join('again', tables={'users': dict(rule='sgd', combine='sum', initial=0)})
        self.restore()
        self.assertEqual(self.state(), expected)


class Operators(Snapshots):
    def ask(self, name, code=0, words='', *options):
        answer = self.service.ask('snapshot', name, '--output', str(self.path), *options)
        self.assertEqual(answer.returncode, code, answer)
        self.assertIn(words, answer.stdout + answer.stderr)
        return answer.stdout

    def test_the_rows_of_all_tables_are_of_one_clock_while_the_job_trains(self):
        self.serve('--lanes-per-core', 2)
        spec = {name: dict(rule='sgd', combine='sum', initial=0) for name in 'ab'}
        self.join('live', tables=spec)
        ends, failures = threading.Event(), []
        barrier = threading.Barrier(2)

        def run(rank):
            try:
                while not ends.is_set():
                    for table in self.tables[rank].values():
                        table.pull([rank])
                        table.push(KEYS, numpy.ones((len(KEYS), DIM), 'f'))
                    self.jobs[rank].clock()
                    barrier.wait(4 * harness.WAIT_S)
            except threading.BrokenBarrierError:
                pass
            except Exception as error:
                failures.append(error)
                barrier.abort()
        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        try:
            clocks = [json.loads(self.ask('live', 0, '', '--json'))]
            while clocks[-1]['clock'] == clocks[0]['clock'] and not failures:
                clocks.append(json.loads(self.ask('live', 0, '', '--json')))
        finally:
            ends.set()
            barrier.abort()
            for thread in threads:
                thread.join()
        self.assertEqual(failures, [])
        validate(clocks[-1], 'snapshot_tables')
        self.assertEqual((clocks[-1]['tables'], clocks[-1]['rows']), (2, 2 * len(KEYS)))
        self.join('again', tables=spec)
        self.restore()
        expected = numpy.full((len(KEYS), DIM), -0.5 * (clocks[-1]['clock'] - 1), 'f')
        self.assertEqual(self.state()[0], [expected.tobytes()] * 2)
        self.ask('again', 0, 'tables with 1800 rows; pushes waited for ')

    def test_only_ranks_save_a_job_with_tables_and_tensors(self):
        self.serve()
        self.join('both', dense='sgd')
        self.ask('both', 1, 'job both has tables and tensors with update rules, so only the ranks '
                 'know the clock in which an iteration ends; call gp_job_snapshot() in the script')
        self.assertFalse(self.path.exists())


class Refusals(Snapshots):
    options = {}

    def setUp(self):
        self.serve('--job-table-bytes-max', '24M')
        self.join('source', dense='sgd')
        self.begin()
        self.train([1, 2])

    def test_a_rank_inside_of_a_clock_is_refused(self):
        self.tables[1]['users'].push([1], numpy.ones((1, DIM), 'f'))
        self.refuse(errno.EBUSY, "table 'users': rank 1 has pushes in clock 3, which has not "
                    'ended; call gp_clock() before a snapshot or restore',
                    lambda rank: self.jobs[rank].snapshot(str(self.path)))
        self.jobs[0].clock()
        self.refuse(errno.EBUSY, "table 'users': rank 1 has pushes",
                    lambda rank: self.jobs[rank].snapshot(str(self.path)))
        self.jobs[1].clock()
        self.snapshot()

    def test_ranks_in_different_clocks_are_refused(self):
        self.jobs[0].clock()
        self.refuse(errno.EINVAL, "job 'source': ranks have ended different clocks: one is in "
                    'clock 3, another one in clock 4; call gp_job_snapshot() after the same clock',
                    lambda rank: self.jobs[rank].snapshot(str(self.path)))
        self.assertFalse(self.path.exists())
        self.jobs[1].clock()
        self.train([4])

    def stays(self, code, words):
        """Checks that a restore is refused, and that it changes neither rows nor tensors."""
        before = self.state()
        self.refuse(code, words, lambda rank: self.jobs[rank].restore(
            str(self.path), {self.dense[rank]: self.values[rank]}))
        self.assertEqual(self.state(), before)
        self.train([5])
        self.assertNotEqual(self.state(), before)

    def fresh(self, name, **changes):
        self.join(name, dense='sgd', tables={**TABLES, **changes})
        self.begin()

    def test_tables_with_rows_stay_as_they_are(self):
        self.snapshot()
        self.train([3])
        self.stays(errno.EEXIST, 'rows already; import before the first push of a new table')

    def test_other_tables_are_refused_before_any_change(self):
        self.snapshot()
        self.fresh('spec', items=dict(TABLES['items'], rule='sgd'))
        self.stays(errno.EINVAL, "but table 'items' has dim 3, dtype f16, rule sgd; declare the")
        self.fresh('more', more=TABLES['items'])
        self.stays(errno.EINVAL, "the snapshot has no table 'more'; restore the file that was "
                   'saved with this model')
        self.fresh('bound', users=dict(TABLES['users'], keys=100))
        self.stays_with_small_keys()

    def stays_with_small_keys(self):
        before = self.tables[0]['users'].pull(numpy.arange(100)).tobytes()
        self.refuse(errno.ERANGE, "of table 'users', but this table has keys below 100; declare "
                    'the table with more keys, or without a bound (0)',
                    lambda rank: self.jobs[rank].restore(str(self.path)))
        self.assertEqual(self.tables[0]['users'].pull(numpy.arange(100)).tobytes(), before)

    def test_a_file_with_other_tables_than_the_job_is_refused(self):
        self.snapshot()
        self.join('fewer', dense='sgd', tables={'users': TABLES['users']})
        self.begin()
        self.stays(errno.EINVAL, 'the snapshot has 2 tables, but job fewer has declared 1; '
                   'declare the tables of the saved model')
        self.join('none', dense='sgd', tables={})
        self.begin()
        self.refuse(errno.EINVAL, "the snapshot has tables, but job 'none' has declared none",
                    lambda rank: self.jobs[rank].restore(str(self.path)))

    def test_a_damaged_file_is_refused_before_any_change(self):
        self.snapshot()
        whole = self.path.read_bytes()
        for number, (change, words) in enumerate((
                (lambda d: d[:-9] + bytes([d[-9] ^ 1]) + d[-8:], 'the file is no exported table, '
                 'or is damaged: the checksum of a part differs'),
                (lambda d: d[:-100], 'a damaged snapshot: '))):
            self.path.write_bytes(change(whole))
            self.fresh(f'damaged{number}')
            self.stays(errno.EBADMSG, f'{self.path}: {words}')

    def test_rows_beyond_a_limit_are_refused_before_any_change(self):
        self.each(lambda rank: self.tables[rank]['users'].push(
            numpy.arange(rank, 200000, 2), numpy.ones((100000, DIM), 'f')))
        for job in self.jobs:
            job.clock()
        self.snapshot()
        kept = self.path.read_bytes()
        self.serve('--job-table-bytes-max', '6M')
        self.path.write_bytes(kept)
        self.fresh('small')
        self.stays(errno.EDQUOT, '--job-table-bytes-max')


if __name__ == '__main__':
    tap.main()
