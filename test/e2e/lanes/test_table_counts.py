"""Tests the counts of tables that operators see in `gradpool jobs`, `gradpool explain` and the
metrics. Keys and clocks are known, so every count must be exact, over shared memory and over tcp.
"""
import json
import re
import unittest

import numpy

import harness
import ranks  # noqa: F401  sets GRADPOOL_LIBRARY: before gradpool
import tap
import gradpool
from harness import Service, until
from test_outputs import validate
from test_see import fetch, web_of

SEEN = ('rows', 'births', 'pulled_keys', 'pushed_keys', 'minimum_clock', 'largest_clock')


def rows_of(count, dim):
    return numpy.ones((count, dim), numpy.float32)


class Counts(unittest.TestCase):
    def setUp(self):
        self.service = Service('--lanes-per-core', 2, '--http', '127.0.0.1:0')
        self.addCleanup(self.service.end)

    def join(self, name, transport, workers=2):
        self.name = name
        client = gradpool.connect(self.service.endpoint, transport)
        self.addCleanup(client.close)
        return [client.join(name, rank, workers) for rank in range(workers)]

    def declare(self, jobs, *spec, **options):
        tables = [job.table(*spec, **options) for job in jobs]
        tables[0].set(lr=0.1)
        return tables

    def shown(self, command):
        """Returns the tables of the job, by name. Checks the output against the schema."""
        output = json.loads(self.service.ask(command, self.name, '--json').stdout)
        validate(output, command)
        return {table['table']: table for table in output['jobs'][0]['tables']}

    def await_counts(self, table, *counts, **more):
        """Waits for these counts, because a lane may count a pull after it has sent the answer."""
        expected, seen = {**dict(zip(SEEN, counts)), **more}, []

        def is_so():
            seen[:] = [self.shown('jobs')[table]]
            return all(seen[0].get(key) == value for key, value in expected.items())
        until(is_so, lambda: f'counts {expected}: {seen}', process=self.service.serve)
        return seen[0]

    def metric(self, name, table):
        text = fetch(web_of(self.service) + '/metrics')[1]
        labels = f'tenant="",job="{self.name}",table="{table}"'
        found = re.search(rf'^gradpool_table_{name}{{{labels}}} (\S+)$', text, re.M)
        return float(found.group(1)) if found else None

    def count_all(self, transport):
        jobs = self.join(f'counts-{transport}', transport)
        users = self.declare(jobs, 'users', 4, 'adagrad', combine='sum')
        words = self.declare(jobs, 'words', 1, 'sgd', consistency='ssp:2')
        users[0].push(numpy.repeat(numpy.arange(100), 2), rows_of(200, 4))  # 100 different keys
        users[1].push(numpy.arange(50, 150), rows_of(100, 4))
        words[1].push([7], rows_of(1, 1))
        for job in jobs:
            job.clock()
        users[1].pull(numpy.arange(200))         # 50 of these keys have no row
        words[1].pull([7, 8])
        shown = self.await_counts('users', 150, 150, 200, 200, 2, 2)
        self.assertNotIn('behind_rank', shown)
        self.assertGreaterEqual(shown['bytes'], 150 * (8 + 2 * 4 * 4))
        self.assertLess(shown['bytes'], 64 << 20)
        terms = [shown[key] for key in ('dim', 'rule', 'consistency', 'shards', 'failure')]
        self.assertEqual(terms, [4, 'adagrad', 'bsp', 64, ''])
        self.await_counts('words', 1, 1, 2, 1, 2, 2, consistency='ssp:2', rule='sgd')
        for _ in range(2):
            jobs[0].clock()
        self.await_counts('users', 150, 150, 200, 200, 2, 4, behind_rank=1)
        self.await_counts('words', 1, 1, 2, 1, 2, 4, behind_rank=1)
        self.check_other_outputs()
        for _ in range(2):
            jobs[1].clock()
        self.assertNotIn('behind_rank', self.await_counts('words', 1, 1, 2, 1, 4, 4))

    def check_other_outputs(self):
        text = self.service.ask('jobs', self.name).stdout
        self.assertRegex(text, r'users +4  adagrad  bsp +64 +150 .* 150 +200 +200 +2  '
                               r'rank 1 by 2  -\n')
        self.assertRegex(self.service.ask('jobs').stdout, r'TABLES +LANES\n.* 2 +\d')
        self.assertEqual(self.shown('explain'), self.shown('jobs'))
        self.assertIn('users', self.service.ask('explain', self.name).stdout)
        listed = json.loads(self.service.ask('table', 'list', '--json').stdout)
        validate(listed, 'tables')
        self.assertEqual([(job['job'], [table['table'] for table in job['tables']])
                          for job in listed['jobs']], [(self.name, ['users', 'words'])])
        self.assertRegex(self.service.ask('table', 'list').stdout,
                         rf'- +{self.name} +users +4  adagrad .* rank 1 by 2  -\n')
        until(lambda: self.metric('largest_clock', 'users') == 4, 'the metrics have the clocks',
              process=self.service.serve)
        for name, value in (('rows', 150), ('births_total', 150), ('pulled_keys_total', 200),
                            ('pushed_keys_total', 200), ('minimum_clock', 2), ('behind_rank', 1)):
            self.assertEqual(self.metric(name, 'users'), value, name)

    def test_counts_of_tables_in_shared_memory_are_exact(self):
        self.count_all('shm')

    def test_counts_of_tables_by_tcp_are_exact(self):
        self.count_all('tcp')

    def test_a_job_without_tables_shows_none(self):
        self.join('none', 'shm', 1)
        until(lambda: self.service.job('none'), 'the job is there', process=self.service.serve)
        self.assertNotIn('tables', self.service.job('none'))
        self.assertNotIn('TABLES', self.service.ask('jobs').stdout)
        self.assertEqual(len(self.service.ask('table', 'list', 'none').stdout.splitlines()), 1)
        listed = json.loads(self.service.ask('table', 'list', '--json').stdout)
        self.assertEqual(listed, {'jobs': []})
        answer = self.service.ask('table', 'list', 'nobody')
        self.assertEqual(answer.returncode, 3)
        self.assertIn('there is no job nobody', answer.stderr)

    def test_wrong_words_of_the_command_are_named(self):
        for words, text in ((['drop'], "'drop': expected list, export or import"),
                            ([], 'missing: list, export or import'),
                            (['export', 'a', 'b'], 'missing: JOB TABLE FILE'),
                            (['import', 'a', 'b', 'c', 'd'], "'d': one operand too many"),
                            (['list', 'a', 'b'], "'b': one argument too many; give one job")):
            answer = self.service.ask('table', *words)
            self.assertEqual(answer.returncode, 2, answer)
            self.assertIn(text, answer.stderr)

    def test_a_failed_table_is_shown_with_its_reason(self):
        jobs = self.join('fails', 'shm')
        self.declare(jobs, 'users', 4, 'adagrad')
        harness.kill_all(self.service.pids('up'))
        until(lambda: self.shown('jobs')['users']['failure'], 'the table has failed',
              process=self.service.serve)
        self.assertRegex(self.service.ask('jobs', self.name).stdout,
                         r"failed: table 'users'.* shards? \d")
        answer = self.service.ask('table', 'export', self.name, 'users', '/tmp/none.table')
        self.assertEqual(answer.returncode, 1, answer)
        self.assertIn(f"table 'users' of job {self.name} has failed: ", answer.stderr)


if __name__ == '__main__':
    tap.main()
