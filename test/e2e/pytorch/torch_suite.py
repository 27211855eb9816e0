"""Runs PyTorch's own distributed tests (part of python3-torch) on the backend `gradpool`, with
three ranks and one job for each test. torch_suite.txt (PyTorch 1.13) and torch_suite_2.6.txt name
all tests that pass on gloo. The files also name the number of ranks of each test that needs more
than three. A skipped test counts as failed.

Ranks are forks of a process that has imported torch. With --spawn each rank is a separate
interpreter, as in PyTorch. Such a rank also unloads all modules at its end, but spends most of its
time in imports.

Usage: torch_suite.py [--backend gloo] [--spawn] [NAME...]

On gloo without names, all shipped tests run. The passed tests must be those of the file."""
import argparse
import collections
import concurrent.futures
import contextlib
import multiprocessing
import os
import pathlib
import re
import sys
import tempfile
import types
import unittest

HERE = pathlib.Path(__file__).parent
# file for each version of PyTorch; other versions have their number in the file name
FILES = {'1.13': 'torch_suite.txt'}
NICENESS = 10       # other tests running at the same time measure times
TEST_S = 600        # time limit in seconds: with other load on the host, nice tests are slow
# Tests that make their model only if the backend has one of PyTorch's own names. These tests see
# the name `gloo`; their group is of `gradpool`, and no group of gloo can be made.
OF_NAME = 'test_accumulate_gradients_no_sync'
# number of ranks for tests that need more than three or an even number, like those of sub-groups in
# PyTorch 2
MANY = 8
# Tests with PyTorch's own deadlines of a second or two, which ranks of this niceness may miss on a
# busy host.
TIMED, ATTEMPTS = 'barrier_timeout|monitored_barrier', 3
# minimum of the mean number of rounds in a test: some tests only read their rank
ROUNDS_A_TEST = 2

# set before torch is imported: its threads would not exist in a fork
os.environ.setdefault('OMP_NUM_THREADS', '1')
os.environ.setdefault('WORLD_SIZE', '3')        # PyTorch 1 skips tests of sub-groups with two ranks
os.environ.setdefault('INIT_METHOD', 'file://')
backend = os.environ.get('BACKEND', 'gradpool')
RANKS = int(os.environ['WORLD_SIZE'])

Verdict = collections.namedtuple('Verdict', 'name ranks is_skipped wrong')


class ExpectTest(unittest.TestCase):
    """Replaces a part of the module expecttest, which Debian lacks. The tests use no other part."""

    def assertExpectedInline(self, actual, expected, skip=0):
        self.assertEqual(actual, expected)


sys.modules['expecttest'] = types.ModuleType('expecttest')
sys.modules['expecttest'].TestCase, sys.modules['expecttest'].ACCEPT = ExpectTest, False

import ranks    # imported before gradpool, because it sets the path of the library
import torch
import gradpool.distributed
from torch.distributed import distributed_c10d
from torch.testing._internal import common_distributed
# Decorators read the backend at import, tests read it at run time. With the value `gloo` at import,
# tests for gloo alone also run on gradpool.
os.environ['BACKEND'] = 'gloo'
from torch.testing._internal.distributed import distributed_test
os.environ['BACKEND'] = distributed_test.BACKEND = backend
common_distributed.TIMEOUT_DEFAULT = TEST_S

import harness
import tap


class TorchSuite(distributed_test.TestDistBackend,
                 distributed_test.DistributedTest._DistTestBase):
    """Runs each test in as many processes as it has ranks."""
    method = 'fork'

    def setUp(self):
        os.environ['GRADPOOL_JOB'] = self._testMethodName
        super().setUp()
        # the variable changes with each test
        distributed_test.INIT_METHOD = os.environ['INIT_METHOD']
        self._start_processes(torch.multiprocessing.get_context(self.method).Process)

    @classmethod
    def _run(cls, *arguments, **options):
        os.dup2(2, 1)   # the test's output would not be valid TAP
        if distributed_test.BACKEND != 'gloo':
            distributed_c10d.ProcessGroupGloo = None    # from now on no group of gloo can be made
        super()._run(*arguments, **options)

    def run_test(self, *arguments, **options):
        group = distributed_c10d._get_default_group()
        is_ours = isinstance(group, gradpool.distributed.ProcessGroup)
        assert is_ours == (distributed_test.BACKEND == 'gradpool'), group
        if self._testMethodName.startswith(OF_NAME):
            distributed_test.BACKEND = 'gloo'
        super().run_test(*arguments, **options)


def shipped():
    return [name for name in dir(TorchSuite) if name.startswith('test_')]


def named():
    """Returns {name: number of ranks} of the tests that pass on gloo with this version of
    PyTorch."""
    version = '.'.join(torch.__version__.split('.')[:2])
    path = HERE / FILES.get(version, f'torch_suite_{version}.txt')
    words = [line.split() for line in path.read_text().splitlines()]
    return {name: int(count[0]) if count else RANKS for name, *count in words}


def run_in_more(name):
    """Like run(), but repeats a skipped test with more ranks."""
    verdict = run((name, RANKS))
    is_of_ranks = verdict.is_skipped and re.search('(small|odd) world size', verdict.wrong)
    return run((name, MANY)) if is_of_ranks else verdict


def run(test):
    """Runs one (name, number of ranks)."""
    for _ in range(ATTEMPTS if re.search(TIMED, test[0]) else 1):
        verdict = run_once(*test)
        if not verdict.wrong:
            break
    return verdict


def run_once(name, count):
    os.environ['WORLD_SIZE'] = str(count)
    result = unittest.TestResult()
    with contextlib.redirect_stdout(sys.stderr):
        unittest.TestSuite([TorchSuite(name)]).run(result)
    wrong = [text for _, text in result.failures + result.errors]
    skipped = [f'skipped: {reason}' for _, reason in result.skipped]
    return Verdict(name, count, bool(skipped), '\n'.join(wrong + skipped))


def run_all(function, tests):
    """Returns the results in order. Forked ranks mostly wait for each other, so two tests run for
    each core. Spawned ranks import torch, so one test runs for each core."""
    at_once = os.cpu_count() * (2 if TorchSuite.method == 'fork' else 1)
    with concurrent.futures.ProcessPoolExecutor(
            at_once, multiprocessing.get_context('fork'), os.nice, (NICENESS,)) as workers:
        yield from workers.map(function, tests)


def tell(result, test, wrong):
    if wrong:
        result.addFailure(test, (AssertionError, AssertionError(wrong), None))
    else:
        result.addSuccess(test)


class Whole(unittest.TestCase):
    """Checks the results of all tests."""
    service, tests = None, {}
    passed = {}

    def test_the_service_has_carried_the_operations(self):
        lanes = [lane for aggregator in self.service.status()['aggregators']
                 for lane in aggregator['lanes']]
        rounds = sum(lane['use']['rounds'] for lane in lanes)
        self.assertGreater(rounds, ROUNDS_A_TEST * len(self.tests))
        tap.emit(f'# {rounds} rounds')

    def test_gloo_passes_the_named_cases_and_no_others(self):
        self.assertEqual(self.passed, named())


def absent(name, count):
    """Returns the log lines about a test's job that the service should have written but did not."""
    log = Whole.service.serve.text()
    lines = [f'rank {rank} of job {name} (' for rank in range(count)]
    return '; '.join(f'the service has had no {line[:-2]}' for line in lines if line not in log)


def chosen(names):
    """Returns {name: number of ranks} of these tests, or of all tests in the file."""
    tests = named()
    return {name: tests.get(name, RANKS) for name in names or tests}


def on_gradpool(names, result):
    Whole.tests, Whole.service = chosen(names), harness.Service()
    os.environ['GRADPOOL_ENDPOINT'] = Whole.service.endpoint
    try:
        for verdict in run_all(run, Whole.tests.items()):
            tell(result, TorchSuite(verdict.name),
                 verdict.wrong or absent(verdict.name, verdict.ranks))
        if not names:
            Whole('test_the_service_has_carried_the_operations').run(result)
    finally:
        Whole.service.end()


def on_gloo(names, result):
    """Prints the results on gloo. A skipped or failed test is an error only if it was named on the
    command line."""
    for verdict in run_all(run_in_more, names or shipped()):
        if names or not verdict.wrong:
            tell(result, TorchSuite(verdict.name), verdict.wrong)
        elif not verdict.is_skipped:
            tap.emit(f'# {verdict.name}: {verdict.wrong.strip().splitlines()[-1]}')
        if not verdict.wrong:
            Whole.passed[verdict.name] = verdict.ranks
    if not names:
        Whole('test_gloo_passes_the_named_cases_and_no_others').run(result)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--backend', choices=('gradpool', 'gloo'), default=backend)
    parser.add_argument('--spawn', action='store_true')
    parser.add_argument('names', nargs='*')
    options = parser.parse_args()
    if case := os.environ.get('GRADPOOL_TEST_CASE'):
        options.names = ['test_' + case.removeprefix('test_')]
    os.environ['BACKEND'] = distributed_test.BACKEND = options.backend
    TorchSuite.method = 'spawn' if options.spawn else 'fork'
    result = tap.TapResult()
    with tempfile.TemporaryDirectory(prefix='gradpool-torch-') as folder:
        os.environ['TMPDIR'] = tempfile.tempdir = folder    # the tests leave files in this folder
        (on_gloo if options.backend == 'gloo' else on_gradpool)(options.names, result)
    tap.emit(f'1..{result.number}')
    return 0 if result.wasSuccessful() else 1


if __name__ == '__main__':
    sys.exit(main())
