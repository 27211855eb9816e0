"""Tests limits of processes. The error must name the limit that a worker or the service has
reached, and how to raise it."""
import os
import sys
import tempfile
import unittest
from pathlib import Path

import harness
import ranks    # noqa: sets GRADPOOL_LIBRARY
import tap
from harness import GRADPOOL, Process, Service

# Sets each value of the limit in turn, joins a separate job with it, and then resets the limit.
WORKER = """
import os, resource, sys, numpy, gradpool
which, values = getattr(resource, 'RLIMIT_' + sys.argv[1]), [int(v) for v in sys.argv[2:]]
soft, hard = resource.getrlimit(which)
if which == resource.RLIMIT_NPROC:
    os.setuid(65534)
pages = int(open('/proc/self/statm').read().split()[0])
used = {resource.RLIMIT_NOFILE: len(os.listdir('/proc/self/fd')) - 1,
        resource.RLIMIT_AS: pages * resource.getpagesize()}
for value in values:
    try:
        resource.setrlimit(which, (used.get(which, 0) + value, hard))
        with gradpool.connect() as client, client.join(f'{sys.argv[1]}-{value}', 0, 1) as job:
            grown = numpy.ones(1 << 20, numpy.float32)
            job.push_pull(job.declare('w', 1 << 20), grown, operation='sum').wait()
        print('done', flush=True)
    except gradpool.errors.GradpoolError as error:
        print(error, flush=True)
    finally:
        resource.setrlimit(which, (soft, hard))
"""


class Limits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.service = Service(aggregators=1)
        cls.addClassCleanup(cls.service.end)

    def told(self, limit, *values, **environment):
        """Returns the error of a worker for each value of the limit."""
        done = harness.run(
            [sys.executable, '-c', WORKER, limit, *map(str, values)], capture_output=True,
            text=True, env={**os.environ, 'GRADPOOL_ENDPOINT': self.service.endpoint,
                            'GRADPOOL_TIMEOUT_MS': '20000', 'OPENBLAS_NUM_THREADS': '1',
                            'GRADPOOL_LOG_LEVEL': 'error', **environment})
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), len(values), done.stdout + done.stderr)
        return lines

    def check(self, lines, *words):
        for line in lines:
            for word in words if line != 'done' else ():
                self.assertIn(word, line)
        self.assertIn('done', lines[-1:])
        self.assertNotEqual(lines[0], 'done')

    def test_too_few_open_files_of_a_worker_name_the_limit(self):
        for transport in 'shm', 'tcp':
            self.check(self.told('NOFILE', *range(18), 40, GRADPOOL_TRANSPORT=transport),
                       'open files (RLIMIT_NOFILE)', 'ulimit -n')

    def test_too_little_memory_of_a_worker_names_the_limit(self):
        self.check(self.told('AS', 1 << 20, 1 << 34), 'RLIMIT_AS) is ', 'ulimit -v')

    def test_the_limit_of_file_sizes_holds_for_shared_memory(self):
        self.check(self.told('FSIZE', 1 << 10, 1 << 20, 1 << 30), 'RLIMIT_FSIZE) is ', 'ulimit -f')

    def test_too_few_threads_of_a_worker_name_the_limit(self):
        if os.getuid() != 0:
            self.skipTest('the limit of threads does not hold for the user that runs the tests')
        line, = self.told('NPROC', 0)
        self.assertIn('RLIMIT_NPROC) is 0', line)
        self.assertIn('ulimit -u', line)

    def test_too_small_files_of_a_service_name_the_limit(self):
        with tempfile.TemporaryDirectory(prefix='gradpool-limits-') as folder:
            serve = Process(['prlimit', '--fsize=1000', GRADPOOL, 'serve', '--state-dir',
                             f'{folder}/state', '--listen', 'gradpool://127.0.0.1:0'],
                            Path(folder), 'serve')
            self.addCleanup(serve.end)
            serve.wait_for('the limit of the bytes of a file (RLIMIT_FSIZE) is 1000; raise it')
            self.assertNotEqual(serve.wait(), 0)


if __name__ == '__main__':
    tap.main()
