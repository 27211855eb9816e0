"""Late ranks of a tensor whose rounds need two ranks of three, against a real service over TCP. A
late rank that is stopped while it receives a result must not hold up the other ranks."""
import os
import signal
import subprocess
import sys
import unittest

import harness
import tap

# Pushes at each line of standard input. Prints a line when the push has begun, and the result.
WORKER = '''
import ctypes, sys, gradpool
from gradpool._native import binding
endpoint, rank = sys.argv[1], int(sys.argv[2])
lib, at = binding.lib, ctypes.byref
elements = 8 << 20     # a result of 32 MiB takes longer than a signal
gradient, result = ((ctypes.c_float * elements)() for _ in range(2))
job, tensor, request = (ctypes.c_void_p() for _ in range(3))
spec = binding.TensorSpec(name=b'first', dtype=1, elements=elements, quorum=1, bound=2)
def must(code):
    if code < 0:
        sys.exit(lib.gp_last_error().decode())
with gradpool.connect(endpoint) as client, client._using() as handle:
    must(lib.gp_job_join(handle, at(binding.JobSpec(b'late', rank, 3)), at(job)))
    must(lib.gp_tensors_declare(job, at(spec), 1, at(tensor)))
    print('declared', flush=True)
    for line in sys.stdin:
        gradient[0] = gradient[elements - 1] = float(line)
        must(lib.gp_push_pull(tensor, gradient, result, 2, at(request)))
        print('pushed', flush=True)
        must(lib.gp_wait(request, 0))
        print(result[0], result[elements - 1], flush=True)
    must(lib.gp_job_leave(job))
'''


class LateRanks(unittest.TestCase):
    def setUp(self):
        self.service = harness.Service()
        self.addCleanup(self.service.end)
        environment = {**os.environ, 'GRADPOOL_TRANSPORT': 'tcp'}
        self.ranks = [subprocess.Popen([sys.executable, '-c', WORKER, self.service.endpoint,
                                        str(rank)], env=environment, text=True,
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                      for rank in range(3)]
        self.addCleanup(self.kill_ranks)
        for rank in self.ranks:
            self.expect(rank, 'declared')

    def kill_ranks(self):
        for rank in self.ranks:
            rank.kill()
            rank.communicate()

    def expect(self, rank, line):
        self.assertEqual(rank.stdout.readline().rstrip('\n'), line)

    def push(self, rank, value):
        print(value, file=rank.stdin, flush=True)
        self.expect(rank, 'pushed')

    def round_of(self, ranks, value):
        for rank in ranks:
            self.push(rank, value)
        for rank in ranks:
            self.expect(rank, f'{value:.1f} {value:.1f}')

    def test_a_stopped_late_rank_holds_up_no_other_rank(self):
        first, late, last = self.ranks
        for stop in range(1, 4):
            self.round_of([first, last], 4 * stop)
            self.push(late, 1000)       # the round is closed, so the rank is late
            late.send_signal(signal.SIGSTOP)
            for value in range(4 * stop + 1, 4 * stop + 4):
                self.round_of([first, last], value)
            late.send_signal(signal.SIGCONT)
            # each piece of the tensor has the result that was the newest one when it was written
            for value in map(float, late.stdout.readline().split()):
                self.assertIn(value, range(4 * stop, 4 * stop + 4))
        self.round_of([first, late], 20)


if __name__ == '__main__':
    tap.main()
