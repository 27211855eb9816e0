"""Tests exports, snapshots and restores of tables with durability `replica`, before and after the
loss of an aggregator, and what operators see of the copies."""
import concurrent.futures
import errno
import json
import os
import pathlib
import re
import signal
import unittest

import numpy

import harness
import ranks  # noqa: F401  sets GRADPOOL_LIBRARY: before gradpool
import tap
import gradpool
import test_table_snapshots as snapshots
from test_outputs import validate
from test_see import fetch, web_of

TABLES = {name: dict(spec, durability='replica') for name, spec in snapshots.TABLES.items()}


class ReplicaFiles(snapshots.Snapshots):
    options = {}

    def start(self, aggregators, name='first', **spec):
        self.service = harness.Service('--scale', 'off', '--http', '127.0.0.1:0',
                                       aggregators=aggregators)
        self.addCleanup(self.service.end)
        self.path = pathlib.Path(self.service.folder) / 'snapshot'
        self.join(name, tables={key: dict(terms, **spec) for key, terms in TABLES.items()})

    def shown(self, command, job):
        output = json.loads(self.service.ask(command, job, '--json').stdout)
        validate(output, command)
        return [table.get('copy') for table in output['jobs'][0]['tables']]

    def metrics(self, job):
        return re.findall(rf'^gradpool_table_copy_is_whole{{tenant="",job="{job}",.*}} (\S+)$',
                          fetch(web_of(self.service) + '/metrics')[1], re.M)

    def await_copies(self, job, state='whole'):
        """Waits until operators see this state of all tables, in each output."""
        harness.until(lambda: self.shown('jobs', job) == [state] * len(TABLES),
                      lambda: f'{job}: {self.shown("jobs", job)}', process=self.service.serve)
        self.assertEqual(self.shown('explain', job), [state] * len(TABLES))
        for command in 'jobs', 'explain':
            rows = re.findall(r'^ *(?:users|items) .*  (\S.*?)$', self.service.ask(command, job)
                              .stdout, re.M)
            self.assertEqual(rows, [state] * len(TABLES))
        expected = [str(int(state == 'whole'))] * len(TABLES)
        # the web server collects its figures at intervals
        harness.until(lambda: self.metrics(job) == expected, lambda: f'{job}: {self.metrics(job)}',
                      process=self.service.serve)

    def owner_of(self, job):
        """Returns a lane whose tables have a whole copy."""
        whole = rf'job {job}: lane \d+ has a whole copy of the tables on lane (\d+)'
        return re.findall(whole, self.service.serve.text())[-1]

    def pid_of(self, lane):
        return next(a['pid'] for a in self.service.serving('up')
                    if any(one['lane'] == int(lane) for one in a['lanes']))

    def kill_owner(self, job):
        """Kills an aggregator that serves shards of the job, and waits for the promotion."""
        owner = self.owner_of(job)
        os.kill(self.pid_of(owner), signal.SIGKILL)
        promoted = rf'job {job}: lane \d+ serves the tables of lane {owner},'
        harness.until(lambda: re.search(promoted, self.service.serve.text()),
                      f'a copy of {job} continues', process=self.service.serve)

    def files(self):
        """Returns the bytes of an export of each table, of a rank's and an operator's snapshot."""
        found = []
        for name, table in self.tables[0].items():
            table.export(str(self.path))
            found.append(self.path.read_bytes())
        self.snapshot()
        found.append(self.path.read_bytes())
        answer = self.service.ask('snapshot', 'first', '--output', str(self.path))
        self.assertEqual(answer.returncode, 0, answer)
        return found + [self.path.read_bytes()]

    def test_files_have_the_same_bytes_after_a_promotion(self):
        self.start(3)
        self.train(range(1, 6))
        self.await_copies('first')
        before = self.files()
        self.kill_owner('first')
        self.assertEqual(self.files(), before)
        self.train(range(6, 9))
        expected = self.state()
        self.join('second', tables=TABLES)
        self.restore()
        self.await_copies('second')
        self.kill_owner('second')
        self.train(range(6, 9))
        self.assertEqual(self.state(), expected)

    def test_operators_see_that_a_table_has_no_copy(self):
        self.start(1)
        self.await_copies('first', 'no copy')
        self.assertIn('no copy: table users has no whole copy: there is no other aggregator\n',
                      self.service.ask('jobs', 'first').stdout)

    def restore_rank(self, rank):
        """Returns the error of a restore; 0: none."""
        try:
            self.jobs[rank].restore(str(self.path))
        except gradpool.GradpoolError as error:
            return error.errno
        return 0

    def kill_during_restore(self):
        """Kills an owner when rows are restored. Returns the results of the ranks."""
        def has_begun():
            job = self.service.job('second')
            return all(one.done() for one in going) or any(t.get('rows') for t in job['tables'])
        owner = self.owner_of('second')
        with concurrent.futures.ThreadPoolExecutor(len(self.jobs)) as pool:
            going = [pool.submit(self.restore_rank, rank) for rank in range(len(self.jobs))]
            harness.until(has_begun, 'rows are restored', process=self.service.serve)
            os.kill(self.pid_of(owner), signal.SIGKILL)
            return [one.result() for one in going]

    def test_a_kill_during_a_restore_loses_no_row_in_silence(self):
        self.start(2)
        keys = numpy.arange(60000)
        for rank in range(2):
            self.tables[rank]['users'].push(keys, numpy.ones((len(keys), snapshots.DIM), 'f'))
        for job in self.jobs:
            job.clock()
        self.snapshot()
        expected = self.tables[0]['users'].pull(keys)
        self.join('second', tables=TABLES)
        self.await_copies('second')
        codes = self.kill_during_restore()
        try:
            rows = self.tables[0]['users'].pull(keys)
        except gradpool.GradpoolError as error:
            lost = errno.EOWNERDEAD, errno.ECANCELED, errno.ECONNRESET
            self.assertIn(error.errno, lost, error)
        else:
            self.assertEqual(codes, [0, 0])
            numpy.testing.assert_array_equal(rows, expected)


if __name__ == '__main__':
    tap.main()
