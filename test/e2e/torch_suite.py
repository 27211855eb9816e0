"""PyTorch's own distributed tests, which python3-torch ships, on the backend `gradpool`: two ranks,
a job a test. Those that stand in torch_suite.txt; one that is skipped has failed.

Usage: torch_suite.py [NAME...]; BACKEND=gloo tells what gloo makes of them."""
import os
import pathlib
import shutil
import sys
import tempfile
import types
import unittest

BACKEND = os.environ.setdefault('BACKEND', 'gradpool')
os.environ.setdefault('WORLD_SIZE', '2')
os.environ.setdefault('TEMP_DIR', tempfile.mkdtemp(prefix='gradpool-torch-') if
                      __name__ == '__main__' else '')
NAMES = pathlib.Path(__file__).with_name('torch_suite.txt')


class ExpectTest(unittest.TestCase):
    """Of the module expecttest, which Debian has not; none of the tests uses more of it."""

    def assertExpectedInline(self, actual, expected, skip=0):
        self.assertEqual(actual, expected)


sys.modules['expecttest'] = types.ModuleType('expecttest')
sys.modules['expecttest'].TestCase, sys.modules['expecttest'].ACCEPT = ExpectTest, False

import ranks    # before gradpool: it says where the library is
from torch.testing._internal import common_distributed
import gradpool.distributed
for feature in 'ddp', 'subgroup', 'plugin':
    common_distributed.DistTestCases.backend_feature[feature].add('gradpool')
from torch.testing._internal.distributed import distributed_test

import harness
import tap


class TorchSuite(distributed_test.TestDistBackend,
                 distributed_test.DistributedTest._DistTestBase):
    """Each test runs in two processes, which import this file again."""

    def setUp(self):
        os.environ['GRADPOOL_JOB'] = self._testMethodName
        super().setUp()
        self._spawn_processes()

    @classmethod
    def _run(cls, *arguments):
        os.dup2(2, 1)   # what a test prints is no TAP
        super()._run(*arguments)


class Result(tap.TapResult):
    def addSkip(self, test, reason):
        self.addFailure(test, (AssertionError, AssertionError(f'skipped: {reason}'), None))


def main(names):
    service = harness.Service()
    os.environ['GRADPOOL_ENDPOINT'] = service.endpoint
    folder = pathlib.Path(os.environ['TEMP_DIR'])
    (folder / 'barrier').touch()
    result = Result()
    try:
        unittest.TestSuite(map(TorchSuite, names)).run(result)
    finally:
        service.end()
        shutil.rmtree(folder, ignore_errors=True)
    tap.emit(f'1..{result.number}')
    return 0 if result.wasSuccessful() else 1


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:] or NAMES.read_text().split()))
