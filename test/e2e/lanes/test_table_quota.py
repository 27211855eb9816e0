"""Tests the limit of table memory with a real service: pushes wait when the limit is reached, the
worker gets an error that names the limit, and no row is lost when the limit is raised."""
import errno
import os
import pathlib
import unittest

import numpy

import ranks  # noqa: F401  sets GRADPOOL_LIBRARY: before gradpool
import tap
import gradpool
from harness import Service, until

DIM = 64
KEYS = 4096    # more rows than 1 MiB has room for


class Quota(unittest.TestCase):
    def setUp(self):
        self.service = Service('--scale', 'off', '--require-tls')
        self.addCleanup(self.service.end)

    def join(self, name, transport):
        """Joins a job of a tenant that may have 1 MiB of rows."""
        key = self.service.tenant_key(name, '--job-table-bytes-max', '1M')
        os.environ.update(key)
        self.addCleanup(lambda: [os.environ.pop(variable, None) for variable in key])
        os.environ['GRADPOOL_TIMEOUT_MS'] = '3000'
        self.addCleanup(os.environ.pop, 'GRADPOOL_TIMEOUT_MS', None)
        client = gradpool.connect(self.service.endpoint, transport)
        self.addCleanup(client.close)
        return client.join('words', 0, 1)

    def limit(self, name):
        return self.service.job('words')['limits'][name]

    def raise_limit(self, tenant):
        done = self.service.tenant('set', tenant, '--job-table-bytes-max', 'default')
        self.assertEqual(done.returncode, 0, done.stderr)

    def wait_for_the_limit(self, request):
        with self.assertRaises(gradpool.GradpoolError) as found:
            request.wait(1000)
        self.assertEqual(found.exception.errno, errno.EDQUOT, found.exception)
        self.assertIn(': pushes wait for table memory, after ', str(found.exception))
        self.assertIn('--job-table-bytes-max', str(found.exception))
        self.assertFalse(request.done())

    def export_names_the_limit(self, table):
        path = pathlib.Path(self.service.folder) / 'users.table'
        done = self.service.ask('table', 'export', 'words', 'users', str(path))
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("table 'users' of job words: pushes wait for table memory, so no clock is "
                      'complete: ', done.stderr)
        self.assertIn('--job-table-bytes-max', done.stderr)
        for call, words in (
                (table.export, 'pushes of this rank wait for memory: '),
                (table.job.snapshot, "job 'words': pushes of rank 0 wait for memory: ")):
            with self.assertRaises(gradpool.GradpoolError) as found:
                call(str(path))
            self.assertEqual(found.exception.errno, errno.EDQUOT, found.exception)
            self.assertIn(words, str(found.exception))
            self.assertIn('--job-table-bytes-max', str(found.exception))
        self.assertFalse(path.exists())

    def train(self, transport):
        job = self.join(transport, transport)
        table = job.table('users', DIM, rule='sgd', combine='sum')
        table.set(lr=1)
        keys = numpy.arange(KEYS)
        push = table.start_push(keys, numpy.ones((KEYS, DIM), numpy.float32))
        job.clock()
        pull = table.start_pull(keys)
        until(lambda: self.service.job('words')['waits_for'], 'the job waits for memory',
              process=self.service.serve)
        self.assertIn('--job-table-bytes-max', self.service.job('words')['waits_for'])
        self.assertEqual(self.limit('job-table-bytes')['max'], 1 << 20)
        self.assertLessEqual(self.limit('job-table-bytes')['used'], 1 << 20)
        self.wait_for_the_limit(push)
        self.wait_for_the_limit(pull)
        self.export_names_the_limit(table)
        self.raise_limit(transport)
        self.assertEqual(pull.wait().tolist(), numpy.full((KEYS, DIM), -1.0).tolist())
        push.wait()
        until(lambda: not self.service.job('words')['waits_for'], 'the job no longer waits',
              process=self.service.serve)
        self.assertGreater(self.limit('job-table-bytes')['used'], KEYS * DIM * 4)

    def test_a_push_beyond_the_limit_waits_and_loses_nothing(self):
        self.train('shm')

    def test_a_push_by_tcp_beyond_the_limit_waits_and_loses_nothing(self):
        self.train('tcp')

    def test_a_table_that_cannot_fit_is_refused(self):
        job = self.join('few', 'shm')
        job.table('small', 4)
        with self.assertRaises(gradpool.GradpoolError) as found:
            job.table('large', 4)
        self.assertEqual(found.exception.errno, errno.EDQUOT)
        self.assertIn('gradpool tenant set few --job-table-bytes-max', str(found.exception))

    def test_an_import_beyond_the_limit_is_refused(self):
        path = pathlib.Path(self.service.folder) / 'users.table'
        job = self.join('many', 'shm')
        table = job.table('users', DIM, rule='sgd', combine='sum')
        table.set(lr=1)
        self.raise_limit('many')
        table.push(numpy.arange(KEYS), numpy.ones((KEYS, DIM), numpy.float32))
        job.clock()
        table.pull([0])
        done = self.service.ask('table', 'export', 'words', 'users', str(path))
        self.assertEqual(done.returncode, 0, done.stderr)
        job.leave()
        other = self.join('little', 'shm')
        other.table('users', DIM, rule='sgd', combine='sum')
        done = self.service.ask('table', 'import', 'words', 'users', str(path))
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn('gradpool tenant set little --job-table-bytes-max', done.stderr)


if __name__ == '__main__':
    tap.main()
