"""Sends a tensor of 3 GiB over each transport and checks each element of each result.

Only `test/run.sh --long` uses the whole tensor. Other runs use a tenth of the tensor, and builds
with sanitizers a fiftieth (`--fiftieth`). The whole tensor needs 12 GiB for two workers."""
import os
import sys
import unittest

import tap
from harness import Service, result

WHOLE_ELEMENTS = (3 << 30) // 4
WORKERS = 2
TIMEOUT_S = 1200


def elements():
    if '--fiftieth' in sys.argv:
        return WHOLE_ELEMENTS // 50
    return WHOLE_ELEMENTS if os.environ.get('GRADPOOL_TEST_LONG') else WHOLE_ELEMENTS // 10


def available_bytes():
    with open('/proc/meminfo', encoding='ascii') as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith('MemAvailable'))


class Large(unittest.TestCase):
    def setUp(self):
        # each worker has a gradient and a result; a quarter is added for buffers and other programs
        needed = 2 * WORKERS * elements() * 4 * 5 // 4
        if available_bytes() < needed:
            self.skipTest(f'needs {needed >> 20} MiB, {available_bytes() >> 20} are available')

    def push(self, transport):
        service = Service()
        try:
            workers = service.workers('large', WORKERS, '--transport', transport, '--elements',
                                      elements(), '--rounds', 1, '--timeout-ms', 1000 * TIMEOUT_S)
            for worker in workers:
                self.assertEqual(worker.wait(TIMEOUT_S), 0, worker.tail())
                told = result(worker)
                self.assertEqual((told['rounds'], told['wrong']), (1, 0))
        finally:
            service.end()

    def test_a_tensor_of_3_gib_is_summed_over_shared_memory(self):
        self.push('shm')

    def test_a_tensor_of_3_gib_is_summed_over_tcp(self):
        self.push('tcp')


if __name__ == '__main__':
    tap.main()
