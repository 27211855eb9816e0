"""Tests every operation and quorum of gradpool.h against a real service, over each transport.
operations.c contains the operations and the expected results."""
import unittest

import harness
import tap

PROGRAM = harness.BUILD / 'test' / 'e2e' / 'operations'
service = None


def setUpModule():
    global service
    service = harness.Service()


def tearDownModule():
    service.end()


class Operations(unittest.TestCase):
    def run_over(self, transport):
        done = harness.run([PROGRAM, service.endpoint, transport], capture_output=True,
                           text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_all_operations_and_quorums_over_shared_memory(self):
        self.run_over('shm')

    def test_all_operations_and_quorums_over_tcp(self):
        self.run_over('tcp')


if __name__ == '__main__':
    tap.main()
