"""Tests a service with a memory limit. Shared memory of workers outside the limit must count for
these workers only, not for the service.

Each of four jobs has one worker, with tensors that are together much larger than the limit. With
GRADPOOL_TEST_LONG a tensor has 1 GiB. The cases run with userfaultfd, and without userfaultfd,
which a sandbox may forbid. Only version 1 of cgroups is tested here; test/unit/cli/test_doctor.c
tests version 2."""
import contextlib
import os
import pathlib
import sys
import tempfile
import unittest

import harness
import ranks    # noqa: sets GRADPOOL_LIBRARY
import tap
from harness import BUILD, Service, result

DENY = BUILD / 'test/e2e/deny_calls'
ROOT = pathlib.Path('/sys/fs/cgroup/memory')
IS_LONG = bool(os.environ.get('GRADPOOL_TEST_LONG'))
ELEMENTS = ((1 << 30) if IS_LONG else (64 << 20)) // 4
LIMITS_MIB = (256, 64) if IS_LONG else (64,)
# Limit in MiB on the memory that libfabric uses for a lane's first connection. It uses 6 MiB here;
# libfabric 2.1 with its defaults would use 23.
CONNECTION_MIB = 12
JOBS = 4
HOLES = """
import ctypes, numpy, gradpool
with gradpool.connect() as client, client.join() as job:
    tensor = job.declare('w', 1 << 22)
    values, results = (numpy.frombuffer(job.alloc(4 << 22), numpy.float32) for _ in range(2))
    values[:] = 1
    libc = ctypes.CDLL(None, use_errno=True)
    for _ in range(20):
        job.push_pull(tensor, values, results, operation='sum').wait()
        address = ctypes.c_void_p(results.ctypes.data)
        if libc.madvise(address, results.nbytes, 9):    # MADV_REMOVE
            raise OSError(ctypes.get_errno())
"""


DECLARE = """
import sys, numpy, gradpool
with gradpool.connect() as client, client.join() as job:
    values = numpy.ones(int(sys.argv[1]), numpy.float32)
    tensor = job.declare('w', values.size, rule='adam')
    job.broadcast(tensor, values).wait()
    job.update(tensor, values, values, lr=0.1).wait()
"""


class Cgroup:
    """A memory cgroup. A command with `words` in front of it runs in the cgroup."""

    def __init__(self, limit_bytes):
        try:
            self.path = pathlib.Path(tempfile.mkdtemp(prefix='gradpool-test-', dir=ROOT))
            (self.path / 'memory.limit_in_bytes').write_text(str(limit_bytes))
        except OSError as error:
            raise unittest.SkipTest(f'no memory cgroup of version 1 can be made here: {error}')
        self.words = ['sh', '-c', f'echo $$ > {self.path}/tasks && exec "$@"', 'sh']

    def limit(self, limit_bytes):
        (self.path / 'memory.limit_in_bytes').write_text(str(limit_bytes))

    def used_bytes(self):
        return int((self.path / 'memory.usage_in_bytes').read_text())

    def kills(self):
        lines = (self.path / 'memory.oom_control').read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith('oom_kill ')))

    def most_bytes(self):
        return int((self.path / 'memory.max_usage_in_bytes').read_text())

    def remove(self):
        with contextlib.suppress(OSError):
            harness.until(lambda: not (self.path / 'tasks').read_text(), 'the cgroup is empty')
            self.path.rmdir()


def available_bytes():
    lines = pathlib.Path('/proc/meminfo').read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith('MemAvailable'))


class Limit(unittest.TestCase):
    def serve(self, limit_mib, *before):
        self.cgroup = Cgroup(limit_mib << 20)
        self.addCleanup(self.cgroup.remove)
        service = Service(aggregators=1, before=[*self.cgroup.words, *before])
        self.addCleanup(service.end)
        self.pids = service.pids()
        return service

    def expect_unharmed(self, service):
        self.assertEqual(self.cgroup.kills(), 0, service.serve.tail())
        self.assertEqual(service.pids(), self.pids)
        print(f'# the service took {self.cgroup.most_bytes() >> 20} MiB at most')

    def train(self, limit_mib, *before):
        needed = 2 * JOBS * ELEMENTS * 4 * 5 // 4
        if available_bytes() < needed:
            self.skipTest(f'needs {needed >> 20} MiB, {available_bytes() >> 20} are available')
        service = self.serve(limit_mib, *before)
        workers = [service.worker(f'job{i}', 0, 1, '--transport', 'shm', '--elements', ELEMENTS,
                                  '--rounds', 3, '--timeout-ms', 600000) for i in range(JOBS)]
        for worker in workers:
            self.assertEqual(worker.wait(600), 0, worker.tail())
            told = result(worker)
            self.assertEqual((told['rounds'], told['wrong']), (3, 0))
        self.expect_unharmed(service)

    def without_userfaultfd(self):
        if harness.run([DENY, 'userfaultfd', 'true'], capture_output=True).returncode:
            self.skipTest('no seccomp filter can be installed here')
        return DENY, 'userfaultfd'

    def test_four_jobs_of_longer_tensors_than_the_limit_train(self):
        for limit_mib in LIMITS_MIB:
            with self.subTest(limit_mib=limit_mib):
                self.train(limit_mib)
                self.doCleanups()

    def test_workers_train_where_userfaultfd_is_refused(self):
        self.train(LIMITS_MIB[-1], *self.without_userfaultfd())

    def punch(self, *before):
        """A worker returns the pages of its shared memory to the kernel. An access of a lane must
        not add pages to the service; the worker gets an error instead."""
        service = self.serve(64, *before)
        done = harness.run([sys.executable, '-c', HOLES], capture_output=True, text=True,
                           env={**os.environ, 'GRADPOOL_ENDPOINT': service.endpoint,
                                'GRADPOOL_JOB': 'holes', 'RANK': '0', 'WORLD_SIZE': '1'})
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, 'lent memory whose pages are gone|its pages are gone')
        self.expect_unharmed(service)
        self.assertEqual(result(service.worker('after', 0, 1))['wrong'], 0)

    def declare(self, service, elements, name):
        """Starts a worker that declares a tensor with Adam's state. Returns its error."""
        done = harness.run([sys.executable, '-c', DECLARE, str(elements)], capture_output=True,
                           text=True, env={**os.environ, 'GRADPOOL_ENDPOINT': service.endpoint,
                                           'GRADPOOL_JOB': name, 'RANK': '0', 'WORLD_SIZE': '1'})
        return done.stderr

    def test_states_beyond_the_limit_are_refused_at_declare(self):
        service = self.serve(128)
        self.assertEqual(self.declare(service, 1 << 20, 'fits'), '')        # 24 MiB
        self.assertRegex(self.declare(service, 16 << 20, 'long'),
                         r"need 384.* memory cgroup has .* left of 128 MiB \(.*limit_in_bytes")
        self.assertEqual(self.declare(service, 1 << 20, 'again'), '')
        self.expect_unharmed(service)

    def test_states_beyond_a_lowered_limit_are_refused(self):
        service = self.serve(512)
        self.cgroup.limit(96 << 20)
        self.assertRegex(self.declare(service, 4 << 20, 'long'),    # 96 MiB
                         r'memory cgroup has .* left of 96 MiB')
        self.assertEqual(self.declare(service, 1 << 20, 'fits'), '')
        self.expect_unharmed(service)

    def test_the_first_connection_of_a_lane_takes_few_mib(self):
        service = self.serve(512)
        before = self.cgroup.used_bytes()
        worker = service.worker('small', 0, 1, '--transport', 'tcp', '--elements', 1024)
        self.assertEqual(worker.wait(), 0, worker.tail())
        taken_mib = (self.cgroup.most_bytes() - before) >> 20
        print(f'# {taken_mib} MiB')
        self.assertLess(taken_mib, CONNECTION_MIB)

    def test_slots_beyond_the_limit_are_refused_in_the_first_round(self):
        """A short job runs before the measurement, because libfabric allocates 6 MiB at a lane's
        first connection and never frees them."""
        service = self.serve(512)
        small = service.worker('small', 0, 1, '--transport', 'tcp', '--elements', 1024)
        self.assertEqual(small.wait(), 0, small.tail())
        self.cgroup.limit(self.cgroup.used_bytes() + (6 << 20))
        worker = service.worker('tcp', 0, 1, '--transport', 'tcp', '--rounds', 3)
        self.assertNotEqual(worker.wait(), 0)
        self.assertIn("slots need", worker.text())
        self.expect_unharmed(service)

    def test_a_worker_that_takes_its_pages_back_ends_its_job_alone(self):
        self.punch()

    def test_a_worker_that_takes_its_pages_back_ends_its_job_alone_without_userfaultfd(self):
        self.punch(*self.without_userfaultfd())


if __name__ == '__main__':
    tap.main()
