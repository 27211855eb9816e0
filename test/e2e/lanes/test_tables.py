"""Tests tables with a real service. Each worker replays the pushes of all ranks. With any number of
ranks and lanes, all rows must have the bits of this replay. After a death or a refusal every rank
must get an error."""
import os
import pathlib
import re
import signal
import subprocess
import unittest

import harness
import tap
from harness import Service, until

TOOLS = harness.BUILD / 'test' / 'e2e'
EXAMPLE = harness.BUILD / 'client' / 'gradpool-table-example'
ENDS_S = 60
MANY = 10 ** 6  # number of clocks that no test reaches


class Tables(unittest.TestCase):
    def setUp(self):
        self.running, self.logs = {}, {}

    def serve(self, *options, **keywords):
        self.service = Service('--scale', 'off', *options, **keywords)
        self.addCleanup(self.service.end)
        self.addCleanup(lambda: [p.kill() for p in self.running.values()])

    def start(self, rank, workers, clocks, *spec, transport='shm', **environment):
        log = self.logs[rank] = pathlib.Path(self.service.folder) / f'tables.{rank}'
        self.running[rank] = subprocess.Popen(
            [TOOLS / 'table_worker', *map(str, (rank, workers, clocks, log, *spec))],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env={**os.environ, 'GRADPOOL_ENDPOINT': self.service.endpoint,
                 'GRADPOOL_TRANSPORT': transport, **environment})

    def start_all(self, workers, clocks, *spec, **environment):
        for rank in range(workers):
            self.start(rank, workers, clocks, *spec, **environment)

    def text(self, rank):
        return self.logs[rank].read_text() if self.logs[rank].exists() else ''

    def await_clock(self, clock):
        def is_there():
            ended = [rank for rank, child in self.running.items() if child.poll() is not None]
            return ended or all(f'clock {clock}\n' in self.text(rank) for rank in self.running)
        until(is_there, f'clock {clock} of every rank', process=self.service.serve)
        for rank in self.running:
            self.assertIn(f'clock {clock}\n', self.text(rank))

    def end(self, rank, status=0):
        process = self.running.pop(rank)
        errors = harness.finish(process, ENDS_S)[1]
        text = self.text(rank)
        self.assertEqual(process.returncode, status, f'rank {rank}: {text[-1000:]}{errors}')
        return text

    def end_with_error(self, code, words):
        """Checks that every rank gets this error, with these words in its text. No rank ends before
        all ranks have the error, because the end of a rank would itself cause an error on the other
        ranks."""
        until(lambda: all('error ' in self.text(rank) or child.poll() is not None
                          for rank, child in self.running.items()),
              'an error on every rank', ENDS_S, self.service.serve)
        for rank in sorted(self.running):
            text = self.end(rank, 3)
            found = re.findall(r'^error (\d+) (.*)', text, re.M)
            self.assertEqual(len(found), 1, text)
            self.assertEqual(int(found[0][0]), code, text)
            self.assertRegex(found[0][1], words)


class Replays(Tables):
    def compare(self, workers, clocks, *options, **keywords):
        self.serve(*options, **keywords)
        self.start_all(workers, clocks)
        for rank in range(workers):
            lines = self.end(rank).splitlines()
            self.assertEqual(lines[-3:], [f'clock {clocks}', 'right', 'left'])

    def test_rows_of_two_workers_have_the_bits_of_a_replay(self):
        self.compare(2, 25)

    def test_rows_of_three_workers_on_several_lanes_have_the_bits_of_a_replay(self):
        self.compare(3, 15, '--lanes-per-core', 3)

    def test_rows_of_one_worker_on_one_lane_have_the_bits_of_a_replay(self):
        self.compare(1, 10, aggregators=1)


class Network(Tables):
    """Tests with all ranks connected over tcp, and with some ranks over tcp and others over shared
    memory."""

    def end_all_right(self, clocks):
        for rank in sorted(self.running):
            lines = self.end(rank).splitlines()
            self.assertEqual(lines[-3:], [f'clock {clocks}', 'right', 'left'])

    def test_rows_of_workers_by_tcp_have_the_bits_of_a_replay(self):
        self.serve('--lanes-per-core', 2)
        self.start_all(2, 15, transport='tcp')
        self.end_all_right(15)

    def test_rows_of_workers_by_tcp_and_shared_memory_have_the_bits_of_a_replay(self):
        self.serve()
        for rank, transport in enumerate(('tcp', 'shm', 'tcp')):
            self.start(rank, 3, 10, transport=transport)
        self.end_all_right(10)

    def test_a_killed_worker_fails_the_job_of_the_others(self):
        self.serve()
        self.start_all(3, MANY, transport='tcp')
        self.await_clock(3)
        self.running[1].kill()
        self.running.pop(1).communicate()
        self.end_with_error(104, 'rank 1')

    def test_a_killed_aggregator_fails_its_tables_on_every_rank(self):
        self.serve()
        self.start_all(2, MANY, transport='tcp')
        self.await_clock(3)
        harness.kill_all(self.service.pids('up'))
        self.end_with_error(130, r"table '\w+'.* shards? \d")


class Load(Tables):
    def known_job(self):
        job = self.service.job('tables')
        return job if job and 'period_ns' in job and 'lane_ns' in job else None

    def test_the_lane_time_of_tables_is_measured_and_counts_as_that_of_their_job(self):
        self.serve()
        self.start_all(2, MANY)
        until(self.known_job, 'the period of the job', ENDS_S, self.service.serve)
        before = self.known_job()
        used_ns = before['use']['busy_ns']
        self.assertGreaterEqual(used_ns, before['lane_ns'])
        until(lambda: self.known_job()['use']['busy_ns'] > used_ns, 'more lane time', ENDS_S,
              self.service.serve)
        lanes = [lane for a in self.service.status()['aggregators'] for lane in a['lanes']]
        self.assertGreater(sum(lane['use']['busy_ns'] for lane in lanes), used_ns)


class Deaths(Tables):
    def test_a_killed_worker_fails_the_job_of_the_others(self):
        self.serve()
        self.start_all(3, MANY)
        self.await_clock(5)
        self.running[1].kill()
        self.running.pop(1).communicate()
        self.end_with_error(104, "rank 1")

    def test_killed_aggregators_fail_their_tables_on_every_rank(self):
        self.serve()
        self.start_all(2, MANY)
        self.await_clock(5)
        harness.kill_all(self.service.pids('up'))
        self.end_with_error(130, r"table '\w+'.* shards? \d")

    def test_a_stopped_rank_is_named_with_its_clock(self):
        self.serve()
        self.start_all(2, MANY, GRADPOOL_STALL_MS='300', GRADPOOL_LOG_LEVEL='warn')
        self.await_clock(5)
        self.running[1].send_signal(signal.SIGSTOP)
        named = re.compile(r"table '\w+' clock \d+: no end of clock \d+ from rank 1 \(in clock")
        patience, said = harness.progress.Patience(ENDS_S), ''
        # on a busy host the log may contain warnings from before the stop
        while not named.search(said):
            said += harness.read_more(self.running[0].stderr.fileno(), patience, said).decode()
        self.running[1].send_signal(signal.SIGCONT)


class Example(Tables):
    def test_the_example_of_the_guide_learns_the_scores_of_its_words(self):
        self.serve()
        children = [harness.Process([EXAMPLE], self.service.folder, f'example.{rank}', {
            'GRADPOOL_ENDPOINT': self.service.endpoint, 'GRADPOOL_JOB': 'example',
            'GRADPOOL_RANK': str(rank), 'GRADPOOL_SIZE': '2'}) for rank in range(2)]
        for child in children:
            self.assertEqual(child.wait(), 0, child.text())
            for line in 'word 7: 1.000', 'word 42: 2.000', 'word 1000000007: 3.000':
                self.assertIn(line, child.text())


class Refusals(Tables):
    def test_ranks_with_different_declarations_get_an_error(self):
        self.serve()
        self.start(0, 2, 5)
        self.start(1, 2, 5, 'other')
        self.end_with_error(22, "table 'adagrad'")

    def test_unsupported_tables_are_refused_at_the_declare(self):
        self.serve()
        for spec, words in ('kept', 'GP_KEEP'), ('elastic', "table 'sgd'"):
            self.start_all(1, 5, spec)
            self.end_with_error(95, words)


if __name__ == '__main__':
    tap.main()
