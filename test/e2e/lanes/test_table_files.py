"""Tests exports and imports of tables: a file contains all rows of one clock. A table of another
job on another service continues from this file with the same bits."""
import errno
import json
import os
import pathlib
import struct
import threading
import unittest

import numpy

import harness
import ranks  # noqa: F401  sets GRADPOOL_LIBRARY: before gradpool
import tap
import gradpool
from harness import Service, until
from test_outputs import validate

DIM = 3
HEADER = struct.Struct('<8s6IdQQQQQ256sQ')  # table_layout.h
PART = struct.Struct('<2I2Q')
ADAM_BYTES = 8 + 3 * DIM * 4
SGD_BYTES = 8 + DIM * 4


def rows_of_file(path, row_bytes):
    """Returns the rows of an exported file by key, and the header."""
    data = pathlib.Path(path).read_bytes()
    header, rows, at = HEADER.unpack_from(data), {}, HEADER.size
    while at < len(data):
        count = PART.unpack_from(data, at)[0]
        at += PART.size
        for _ in range(count):
            key, = struct.unpack_from('<Q', data, at)
            rows[key] = numpy.frombuffer(data, numpy.float32, (row_bytes - 8) // 4, at + 8)
            at += row_bytes
    return rows, header


def gradients(rank, clock, count):
    return numpy.random.default_rng(rank + 10 * clock).normal(size=(count, DIM)).astype('f')


class Files(unittest.TestCase):
    def serve(self, *options, **keywords):
        self.service = Service('--scale', 'off', *options, **keywords)
        self.addCleanup(self.service.end)
        self.path = pathlib.Path(self.service.folder) / 'users.table'

    def join(self, name, transport='shm', workers=2, **spec):
        client = gradpool.connect(self.service.endpoint, transport)
        self.addCleanup(client.close)
        self.jobs = [client.join(name, rank, workers) for rank in range(workers)]
        options = {'rule': 'adam', 'combine': 'sum', 'initial': ('normal', 0.1), 'seed': 7, **spec}
        tables = []
        declared = [threading.Thread(target=lambda job=job: tables.append(
            (job.rank, job.table('users', DIM, **options)))) for job in self.jobs]
        for thread in declared:
            thread.start()
        for thread in declared:
            thread.join()
        self.tables = [table for _, table in sorted(tables, key=lambda pair: pair[0])]
        self.tables[0].set(lr=0.25)
        return client

    def train(self, clocks):
        """Trains for some clocks. The keys are different in each clock, so some rows are older than
        others."""
        for clock in clocks:
            for rank, table in enumerate(self.tables):
                table.push(numpy.arange(clock, 500 + 40 * clock, rank + 1),
                           gradients(rank, clock, len(range(clock, 500 + 40 * clock, rank + 1))))
            for job in self.jobs:
                job.clock()

    def rows(self):
        return self.tables[0].pull(numpy.arange(1000))

    def ask(self, verb, job, code=0, words=''):
        answer = self.service.ask('table', verb, job, 'users', str(self.path))
        self.assertEqual(answer.returncode, code, answer)
        self.assertIn(words, answer.stdout + answer.stderr)
        return answer.stdout

    def kill_service(self):
        """Ends all processes of the service at once, as a failure of its host does."""
        harness.kill_all([self.service.serve.pid, *self.service.pids('up')])


class Rows(Files):
    def continue_elsewhere(self, before, after):
        self.serve()
        self.join('first', before)
        self.train(range(1, 5))
        self.ask('export', 'first', words=': table users of job first before clock 5, 659 rows')
        kept = self.path.read_bytes()
        self.train(range(5, 8))
        expected = self.rows()
        self.kill_service()
        self.serve('--lanes-per-core', 3)
        self.path.write_bytes(kept)
        self.join('second', after)
        self.ask('import', 'second', words='table users of job second has the')
        self.train(range(5, 8))
        self.assertEqual(self.rows().tobytes(), expected.tobytes())

    def test_a_table_continues_on_other_lanes_after_a_kill_with_the_same_bits(self):
        self.continue_elsewhere('shm', 'shm')

    def test_a_table_continues_by_tcp_with_the_same_bits(self):
        self.continue_elsewhere('tcp', 'tcp')

    def test_a_file_has_all_rows_of_one_clock_while_the_job_trains(self):
        self.serve('--lanes-per-core', 2)
        self.join('live', rule='sgd', initial=0)
        self.tables[0].set(lr=1)
        ends, go_on, failures = threading.Event(), [True], []
        barrier = threading.Barrier(2, lambda: go_on.__setitem__(0, not ends.is_set()))

        def run(rank):
            try:
                while go_on[0]:
                    self.tables[rank].pull([rank])
                    self.tables[rank].push(numpy.arange(3000), numpy.ones((3000, DIM), 'f'))
                    self.jobs[rank].clock()
                    barrier.wait(4 * harness.WAIT_S)
            except Exception as error:
                failures.append(error)
                barrier.abort()
        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        clocks = []
        try:
            # on a busy host the job sometimes ends no clock between two exports
            while len(clocks) < 5 or clocks[-1] == clocks[0] and not failures:
                self.ask('export', 'live')
                rows, header = rows_of_file(self.path, SGD_BYTES)
                clocks.append(header[11])
                self.assertEqual(sorted(rows), list(range(3000)) if clocks[-1] > 1 else [])
                for row in rows.values():
                    self.assertEqual(row.tolist(), [-2.0 * (clocks[-1] - 1)] * DIM)
        finally:
            ends.set()
            for thread in threads:
                thread.join()
        self.assertEqual(clocks, sorted(clocks))
        self.assertGreater(clocks[-1], clocks[0])
        self.assertEqual(failures, [])

    def test_the_rows_of_asynchronous_tables_are_exported(self):
        self.serve()
        self.join('asp', rule='sgd', initial=0, consistency='asp')
        self.tables[0].set(lr=1)
        self.tables[0].push(numpy.arange(10), numpy.ones((10, DIM), 'f'))
        self.tables[0].pull([1])
        printed = json.loads(self.service.ask('table', 'export', 'asp', 'users', str(self.path),
                                              '--json').stdout)
        validate(printed, 'table_file')
        self.assertEqual(printed, {'rows': 10, 'clock': 1})
        rows, header = rows_of_file(self.path, SGD_BYTES)
        self.assertEqual(sorted(rows), list(range(10)))
        self.assertEqual({row.tobytes() for row in rows.values()},
                         {numpy.full(DIM, -1, 'f').tobytes()})


class Scripts(Files):
    """A rank exports and imports with Table.export() and Table.load()."""

    def continue_elsewhere(self, transport):
        self.serve()
        self.join('first', transport)
        self.train(range(1, 5))
        self.tables[1].export(self.path)
        kept = self.path.read_bytes()
        self.train(range(5, 8))
        expected = self.rows()
        self.serve('--lanes-per-core', 3)
        self.path.write_bytes(kept)
        self.join('second', transport, workers=3)
        self.tables[2].load(self.path)
        del self.tables[2]    # in the clocks below only two ranks push
        self.train(range(5, 8))
        self.assertEqual(self.rows().tobytes(), expected.tobytes())

    def test_a_table_continues_with_the_same_bits(self):
        self.continue_elsewhere('shm')

    def test_a_table_continues_by_tcp_with_the_same_bits(self):
        self.continue_elsewhere('tcp')

    def test_an_export_has_the_pushes_of_all_ended_clocks_and_none_of_an_open_one(self):
        for transport in 'shm', 'tcp':
            self.serve()
            self.join(transport, transport, rule='sgd', initial=0)
            self.tables[0].set(lr=1)
            for clock in range(3):
                for table in self.tables:
                    table.push(numpy.arange(2000), numpy.ones((2000, DIM), 'f'))
                if clock < 2:
                    for job in self.jobs:
                        job.clock()
            self.tables[0].export(str(self.path))
            rows, header = rows_of_file(self.path, SGD_BYTES)
            self.assertEqual((len(rows), header[11]), (2000, 3))
            for row in rows.values():
                self.assertEqual(row.tolist(), [-4.0] * DIM)

    def refuse(self, code, words, call, *arguments):
        with self.assertRaises(gradpool.GradpoolError) as found:
            call(*arguments)
        self.assertEqual(found.exception.errno, code, found.exception)
        self.assertIn(words, str(found.exception))

    def test_refusals_name_the_table_and_leave_the_job_as_it_was(self):
        self.serve()
        self.join('words')
        path = str(self.path)
        self.refuse(errno.ENOENT, "table 'users': gp_table_import() has failed: ",
                    self.tables[0].load, path)
        self.refuse(errno.ENOENT, "table 'users': gp_table_export() has failed: ",
                    self.tables[0].export, path + '/nowhere/file')
        self.path.write_bytes(b'no table')
        self.refuse(errno.EBADMSG, 'gp_table_import() has failed', self.tables[0].load, path)
        self.train([1])
        self.tables[0].export(path)
        self.refuse(errno.EEXIST, 'rows already', self.tables[0].load, path)
        self.train([2])
        self.assertEqual(self.rows().shape, (1000, DIM))
        self.jobs[0].leave()
        self.refuse(errno.EBADF, '', self.tables[0].export, path)

    def test_a_rank_that_has_not_ended_the_clock_is_awaited(self):
        self.serve()
        os.environ['GRADPOOL_TIMEOUT_MS'] = '1500'
        self.addCleanup(os.environ.pop, 'GRADPOOL_TIMEOUT_MS')
        self.join('late')
        self.tables[0].push([1], numpy.ones((1, DIM), 'f'))
        self.jobs[0].clock()
        self.refuse(errno.ETIMEDOUT, 'call gp_table_export() when all ranks have ended the same',
                    self.tables[0].export, str(self.path))
        self.assertFalse(self.path.exists())
        self.jobs[1].clock()
        self.tables[0].export(str(self.path))


class Refusals(Files):
    def setUp(self):
        self.serve()
        self.join('source')
        self.train([1])
        self.ask('export', 'source')
        self.good = self.path.read_bytes()

    def refuse(self, words, name=None, **spec):
        """Checks that the file is refused, and that the new table has no rows."""
        name = name or f'job{len(words)}{len(spec)}'
        self.join(name, **spec)
        initial = self.tables[0].pull(numpy.arange(20)).tobytes()
        self.ask('import', name, 1, words)
        self.assertEqual(self.tables[0].pull(numpy.arange(20)).tobytes(), initial)
        until(lambda: self.service.job(name)['tables'][0].get('rows') == 0, 'no rows',
              process=self.service.serve)

    def test_a_table_with_other_rows_is_refused(self):
        self.refuse("the file has rows of table 'users' with dim 3, dtype f32, rule adam, but "
                    "table 'users' has dim 3, dtype f16, rule adam; declare the table with the",
                    dtype='float16')
        self.refuse("but table 'users' has dim 3, dtype f32, rule sgd", rule='sgd')
        self.refuse('so rows that the file lacks would have other values', seed=8)

    def test_a_damaged_file_is_refused(self):
        for change, words in ((lambda d: d[:-1], 'a damaged file of a table: '),
                              (lambda d: d[:100], 'the file is too short'),
                              (lambda d: b'X' + d[1:], 'the first bytes are not those of a table'),
                              (lambda d: d[:8] + b'\x02' + d[9:],
                               'version 2, but this program reads version 1; install the version'),
                              (lambda d: d[:-9] + bytes([d[-9] ^ 1]) + d[-8:],
                               'the checksum of a part differs')):
            self.path.write_bytes(change(self.good))
            self.refuse(words)

    def test_a_table_with_rows_is_refused(self):
        self.ask('import', 'source', 1, 'rows already; import before the first push')
        self.train([2])

    def test_a_missing_table_job_or_file_is_named(self):
        answer = self.service.ask('table', 'export', 'source', 'items', str(self.path))
        self.assertEqual(answer.returncode, 3, answer)
        self.assertIn("job source has no table 'items'; see `gradpool table list source`",
                      answer.stderr)
        self.ask('export', 'nobody', 3, 'no job nobody')
        self.path = pathlib.Path('/nowhere/users.table')
        self.ask('export', 'source', 1, 'cannot be written')
        self.ask('import', 'source', 1, f'file {self.path} cannot be read: No such file or '
                 'directory; name the file of an export')
        self.path = pathlib.Path(self.service.folder)
        self.ask('import', 'source', 1, 'the path is no regular file; name the file of an export')

    def test_a_key_beyond_the_bound_of_the_table_is_refused_before_the_first_row(self):
        for keys in 100, 539:
            self.refuse(f"file {self.path} has key 539, but table 'users' of job job8{keys} has "
                        f'keys below {keys}; declare the table with keys of 540 or more '
                        '(0: any key)',
                        keys=keys, name=f'job8{keys}')
            self.tables[0].pull([1])
        self.join('wide', keys=540)
        self.ask('import', 'wide', words='table users of job wide has the')

    def test_no_bound_of_keys_is_advised_for_the_largest_key(self):
        last = 2 ** 64 - 1
        self.join('last')
        self.tables[0].push(numpy.array([last], numpy.uint64), numpy.ones((1, DIM), 'f'))
        for job in self.jobs:
            job.clock()
        self.tables[0].pull([0])
        self.ask('export', 'last')
        self.refuse(f"has key {last}, but table 'users' of job bounded has keys below {last}; "
                    'declare the table without a bound of keys (0: any key)', keys=last,
                    name='bounded')


if __name__ == '__main__':
    tap.main()
