"""PyTorch's own distributed tests, which python3-torch ships, on the backend `gradpool`: three
ranks, a job a test. torch_suite.txt names all that gloo passes; one that is skipped has failed.

Ranks are forked from a process that has torch already. With --spawn each is an interpreter of its
own, as PyTorch has it: that one also unloads everything when it ends, which a forked rank does not,
but most of its time goes into imports.

Usage: torch_suite.py [--backend gloo] [--spawn] [NAME...]

On gloo and without names all that is shipped runs, and what passes must be what the file names."""
import argparse
import concurrent.futures
import contextlib
import multiprocessing
import os
import pathlib
import sys
import tempfile
import types
import unittest

HERE = pathlib.Path(__file__).parent
NAMES = 'torch_suite.txt'
NICENESS = 10       # the tests beside this one measure times
TEST_S = 120        # instead of 300: of one that hangs
ROUNDS_A_TEST = 2   # of the service, on the mean, at the least: some only ask for a rank

os.environ.setdefault('OMP_NUM_THREADS', '1')   # before torch; its threads would not be forked
os.environ.setdefault('WORLD_SIZE', '3')        # with two many tests of sub-groups are skipped
os.environ.setdefault('INIT_METHOD', 'file://')
backend = os.environ.get('BACKEND', 'gradpool')


class ExpectTest(unittest.TestCase):
    """Of the module expecttest, which Debian has not; none of the tests uses more of it."""

    def assertExpectedInline(self, actual, expected, skip=0):
        self.assertEqual(actual, expected)


sys.modules['expecttest'] = types.ModuleType('expecttest')
sys.modules['expecttest'].TestCase, sys.modules['expecttest'].ACCEPT = ExpectTest, False

import ranks    # before gradpool: it says where the library is
import torch
import gradpool.distributed
from torch.distributed import distributed_c10d
from torch.testing._internal import common_distributed
# Decorators look at the backend now, tests when they run: what is for gloo alone is asked of
# gradpool as well.
os.environ['BACKEND'] = 'gloo'
from torch.testing._internal.distributed import distributed_test
os.environ['BACKEND'] = distributed_test.BACKEND = backend
common_distributed.TIMEOUT_DEFAULT = TEST_S

import harness
import tap


class TorchSuite(distributed_test.TestDistBackend,
                 distributed_test.DistributedTest._DistTestBase):
    """Each test runs in as many processes as it has ranks."""
    method = 'fork'

    def setUp(self):
        os.environ['GRADPOOL_JOB'] = self._testMethodName
        super().setUp()
        distributed_test.INIT_METHOD = os.environ['INIT_METHOD']    # set just now
        self._start_processes(torch.multiprocessing.get_context(self.method).Process)

    @classmethod
    def _run(cls, *arguments, **options):
        os.dup2(2, 1)   # what a test prints is no TAP
        if distributed_test.BACKEND != 'gloo':
            distributed_c10d.ProcessGroupGloo = None    # a group of it cannot be made any more
        super()._run(*arguments, **options)

    def run_test(self, *arguments, **options):
        group = distributed_c10d._get_default_group()
        is_ours = isinstance(group, gradpool.distributed.ProcessGroup)
        assert is_ours == (distributed_test.BACKEND == 'gradpool'), group
        super().run_test(*arguments, **options)


def shipped():
    return [name for name in dir(TorchSuite) if name.startswith('test_')]


def named():
    lines = (HERE / NAMES).read_text().splitlines()
    return [line for line in lines if line.startswith('test_')]


def run(name):
    """(is skipped, what went wrong) of one test."""
    result = unittest.TestResult()
    with contextlib.redirect_stdout(sys.stderr):
        unittest.TestSuite([TorchSuite(name)]).run(result)
    wrong = [text for _, text in result.failures + result.errors]
    skipped = [f'skipped: {reason}' for _, reason in result.skipped]
    return bool(skipped), '\n'.join(wrong + skipped)


def run_all(names):
    """(name, is skipped, what went wrong) of each, in order. Two at once a core: forked ranks
    mostly wait for each other; others import."""
    at_once = os.cpu_count() * (2 if TorchSuite.method == 'fork' else 1)
    with concurrent.futures.ProcessPoolExecutor(
            at_once, multiprocessing.get_context('fork'), os.nice, (NICENESS,)) as workers:
        for name, verdict in zip(names, workers.map(run, names)):
            yield name, *verdict


def tell(result, test, wrong):
    if wrong:
        result.addFailure(test, (AssertionError, AssertionError(wrong), None))
    else:
        result.addSuccess(test)


class Whole(unittest.TestCase):
    """What the tests came to together."""
    service, names = None, ()
    passed = set()

    def test_the_service_has_carried_the_operations(self):
        lanes = [lane for aggregator in self.service.status()['aggregators']
                 for lane in aggregator['lanes']]
        rounds = sum(lane['use']['rounds'] for lane in lanes)
        self.assertGreater(rounds, ROUNDS_A_TEST * len(self.names))
        tap.emit(f'# {rounds} rounds')

    def test_gloo_passes_what_is_named_and_nothing_else(self):
        self.assertEqual(self.passed, set(named()))


def absent(name):
    """What the service's log lacks of a test's job."""
    log = Whole.service.serve.text()
    lines = [f'rank {rank} of job {name} (' for rank in range(int(os.environ['WORLD_SIZE']))]
    return '; '.join(f'the service has had no {line[:-2]}' for line in lines if line not in log)


def on_gradpool(names, result):
    Whole.names, Whole.service = names or named(), harness.Service()
    os.environ['GRADPOOL_ENDPOINT'] = Whole.service.endpoint
    try:
        for name, _, wrong in run_all(Whole.names):
            tell(result, TorchSuite(name), wrong or absent(name))
        if not names:
            Whole('test_the_service_has_carried_the_operations').run(result)
    finally:
        Whole.service.end()


def on_gloo(names, result):
    """What is skipped or fails here is nothing to gradpool, unless it was asked for by name."""
    for name, is_skipped, wrong in run_all(names or shipped()):
        if names or not wrong:
            tell(result, TorchSuite(name), wrong)
        elif not is_skipped:
            tap.emit(f'# {name}: {wrong.strip().splitlines()[-1]}')
        if not wrong:
            Whole.passed.add(name)
    if not names:
        Whole('test_gloo_passes_what_is_named_and_nothing_else').run(result)


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
        os.environ['TMPDIR'] = tempfile.tempdir = folder    # tests leave files behind
        (on_gloo if options.backend == 'gloo' else on_gradpool)(options.names, result)
    tap.emit(f'1..{result.number}')
    return 0 if result.wasSuccessful() else 1


if __name__ == '__main__':
    sys.exit(main())
