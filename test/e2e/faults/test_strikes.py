"""Runs `gradpool-bench faults`: random kills, stops, cuts and planned ends while jobs train.
Workers of two jobs join and leave, an operator drains and takes snapshots, and a hostile tenant
attacks. The bench checks every element of every round. GRADPOOL_TEST_LONG runs ten seeds for five
minutes each. A second case crashes a process of the service: the bench must report the crash,
although the service recovers."""
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import unittest

import harness
import tap
from harness import BENCH, until

SEED = tap.seed(4)
IS_LONG = bool(os.environ.get('GRADPOOL_TEST_LONG'))
# minimum number of seconds; the bench continues until it has tried each kind of fault
SECONDS = 300 if IS_LONG else 20

TRIES = 3
# minimum number of kinds of faults, of eleven; in the short form each kind has one or two seconds
KINDS_LEAST = 6
KINDS = ('kills_aggregator', 'kills_worker', 'kills_coordinator', 'restarts', 'retired', 'stops',
         'cuts', 'rounds', 'rounds_elastic', 'snapshots', 'attacks')
WAIT_S = 24  # three times the limit of each wait in the bench, because the host may have few cores


def seeds():
    """Returns the seeds. GRADPOOL_TEST_SEEDS is one seed, or a range such as 4-8. The default is
    ten in the long form."""
    first, _, last = os.environ.get('GRADPOOL_TEST_SEEDS', '').partition('-')
    if first:
        return range(int(first), int(last or first) + 1)
    return range(SEED, SEED + (10 if IS_LONG else 1))


class Strikes(unittest.TestCase):
    def strike(self, seed):
        answer = harness.run([BENCH, 'faults', '--json', '--seconds', str(SECONDS), '--seed',
                              str(seed)], capture_output=True, text=True, check=False,
                             timeout=6 * SECONDS + 240)
        print(f'# {answer.stdout.strip()}', flush=True)
        self.assertEqual(answer.returncode, 0, answer.stdout + answer.stderr)
        told = json.loads(answer.stdout.splitlines()[-1])
        self.assertEqual(told['kills'], told['kills_aggregator'] + told['kills_worker'] +
                         told['kills_coordinator'])
        self.assertGreater(told['elements_checked'], told['rounds'])
        self.assertLess(told['longest_wait_s'], WAIT_S)
        self.assertEqual((told['wrong'], told['hangs'], told['unnamed_errors'], told['crashes']),
                         (0, 0, 0, 0))
        return told

    def strike_in_all_ways(self, seed):
        """Runs the seed. If a kind of strike has not happened, because the host is busy, runs two
        further seeds."""
        for further in range(TRIES):
            told = self.strike(seed + 1000 * further)
            # A tenant's job with a missing worker blocks a drain; the drain then fails with this
            # reason.
            lacking = [name for name in KINDS if not told[name]]
            lacking += [] if told['drains'] + told['drains_refused'] else ['drains']
            lacking += [] if told['attack_kinds'] >= KINDS_LEAST else ['kinds of attacks']
            if not lacking:
                return
        self.fail(f'a run without {", ".join(lacking)}')

    def test_kills_stops_and_cuts_change_no_element(self):
        for seed in seeds():
            print(f'# GRADPOOL_TEST_SEED={seed}', flush=True)
            with self.subTest(seed=seed):
                self.strike_in_all_ways(seed)


def children(pid):
    """Returns (pid, command line) of each child."""
    found = []
    for folder in pathlib.Path('/proc').glob('[0-9]*'):
        with contextlib.suppress(OSError):
            parent = (folder / 'stat').read_text().rpartition(')')[2].split()[1]
            command = (folder / 'cmdline').read_text().split('\0')
            if int(parent) == pid and command != ['']:
                found.append((int(folder.name), command))
    return found


def coordinators(bench):
    return [pid for pid, command in children(bench) if command[1:2] == ['serve']]


def aggregators(bench):
    return [pid for parent in coordinators(bench) for pid, command in children(parent)
            if command[1:2] == ['aggregator']]


def orphans(bench):
    """Returns the pids of aggregators whose coordinator was killed."""
    return [pid for pid, command in children(bench) if command[1:2] == ['aggregator']]


def workers(bench):
    """Returns the pids of workers: they have threads, but the process that removes the folder
    has none."""
    return [pid for pid, command in children(bench) if command[1:2] == ['faults'] and
            len(list(pathlib.Path(f'/proc/{pid}/task').glob('*'))) > 1]


def find_victim(bench, find, kills_coordinator):
    """Returns the pid of a process that find() returns. Stops the bench meanwhile, so that the
    bench strikes no process. None: the bench has ended, or no such process exists at present."""
    until(lambda: len(workers(bench.pid)) > 10 or bench.poll() is not None, 'it trains')
    if kills_coordinator:
        harness.kill_all(coordinators(bench.pid)[:1])
        until(lambda: find(bench.pid) or bench.poll() is not None, 'they are children of the bench')
    bench.send_signal(signal.SIGSTOP)
    until(lambda: harness.state_of(bench.pid) in (None, 'T', 'Z'), 'the bench is stopped')
    return next(iter(find(bench.pid)), None)


class Crashes(unittest.TestCase):
    def crash_once(self, folder, find, kills_coordinator):
        """Sends SIGABRT to one of these processes while it trains. Returns its pid, the exit code
        of the bench, its output and its errors."""
        output, errors = pathlib.Path(folder) / 'output', pathlib.Path(folder) / 'errors'
        with open(output, 'wb') as out, open(errors, 'wb') as err:
            bench = subprocess.Popen([BENCH, 'faults', '--json', '--seconds', '4', '--seed', '4'],
                                     stdout=out, stderr=err, env={**os.environ, 'TMPDIR': folder})
        try:
            victim = find_victim(bench, find, kills_coordinator)
            harness.kill_all([victim] if victim else [], signal.SIGABRT)
            bench.send_signal(signal.SIGCONT)
            harness.finish(bench, 60)
        finally:
            bench.kill()
            bench.wait()
        return victim, bench.returncode, output.read_text(), errors.read_text()

    def crash(self, find, who, kills_coordinator=False):
        """Checks that the bench reports the process and the signal, and keeps the log. The test
        makes several attempts, because the chosen process may already have been ending."""
        for _ in range(TRIES):
            with tempfile.TemporaryDirectory() as folder:
                victim, code, said, errors = self.crash_once(folder, find, kills_coordinator)
                if not victim or f'pid {victim}, ended: signal 6' not in errors:
                    continue
                self.assertEqual(code, 1, errors)
                self.assertRegex(errors, f'{who}, pid {victim}, ended: signal 6 .*a crash')
                crashes = '\n'.join(line for line in errors.splitlines() if '<- a crash' in line)
                self.assertEqual(json.loads(said.splitlines()[-1])['crashes'],
                                 1 + kills_coordinator, f'{crashes}\n{errors}')
                log = re.search(r'log is kept: (.*)', errors)
                self.assertIn('started a local aggregator', pathlib.Path(log[1]).read_text())
                return
        self.fail(f'the bench reports no crash of {victim}: {errors}')

    def test_a_crash_of_an_aggregator_fails_the_bench(self):
        self.crash(aggregators, 'an aggregator')

    def test_a_crash_of_an_aggregator_without_coordinator_fails_the_bench(self):
        self.crash(orphans, 'an aggregator', kills_coordinator=True)

    def test_a_crash_of_the_coordinator_fails_the_bench(self):
        self.crash(coordinators, 'the coordinator')

    def test_a_crash_of_a_worker_fails_the_bench(self):
        self.crash(workers, r'[a-z]+-[\d-]+, rank \d')


if __name__ == '__main__':
    tap.main()
