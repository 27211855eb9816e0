"""Tests workers in containers with the host's network. Inside a container a process has a PID that
another process has on the host."""
import pathlib
import subprocess
import sys
import unittest

import harness
import ranks    # noqa: sets GRADPOOL_LIBRARY
import tap
from harness import Process, Service, until

WORKER = """
import numpy, pathlib, sys, time, gradpool
folder = pathlib.Path(sys.argv[1])
with gradpool.connect() as client, client.join() as job:
    tensor, values = job.declare('w', 100), numpy.ones(100, numpy.float32)
    job.push_pull(tensor, values).wait()
    print('a round', flush=True)
    while not (folder / 'go').exists():
        time.sleep(0.01)
    for _ in range(20):
        job.push_pull(tensor, values).wait()
    print('all rounds', flush=True)
"""


class Containers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.container = harness.container()
        cls.service = Service(aggregators=1)
        cls.addClassCleanup(cls.service.end)

    def start(self, name, endpoint, last_pid=1):
        """Starts a worker in a container. In the container its PID is the number after
        `last_pid`."""
        self.folder = self.service.folder / name
        self.folder.mkdir()
        script = f'echo {last_pid} > /proc/sys/kernel/ns_last_pid; "$@"; true'
        worker = Process([*self.container, 'sh', '-c', script, 'sh', sys.executable, '-c', WORKER,
                          self.folder], self.folder, 'worker',
                         {'GRADPOOL_ENDPOINT': endpoint, 'GRADPOOL_JOB': name, 'RANK': '0',
                          'WORLD_SIZE': '1', 'GRADPOOL_TIMEOUT_MS': '20000'})
        self.addCleanup(worker.kill)
        worker.wait_for('a round')
        return worker

    def go_on(self, worker):
        (self.folder / 'go').touch()
        worker.wait_for('all rounds')
        self.assertEqual(worker.wait(), 0)

    def test_a_process_of_the_host_with_the_number_of_a_worker_may_end(self):
        other = subprocess.Popen(['sleep', '1000'])
        self.addCleanup(other.kill)
        worker = self.start('numbers', self.service.endpoint, other.pid - 1)
        self.assertEqual(self.worker_of('numbers')['pid'], other.pid)
        other.kill()
        other.wait()
        self.assertEqual(self.worker_of('numbers')['state'], 'joined')
        self.go_on(worker)

    def test_over_the_unix_socket_a_worker_has_its_number_on_the_host(self):
        worker = self.start('socket', f'unix:{self.service.state}/control.sock')
        pid = self.worker_of('socket')['pid']
        self.assertIn(str(self.folder), pathlib.Path(f'/proc/{pid}/cmdline').read_text())
        self.go_on(worker)

    def test_the_end_of_a_worker_that_cannot_be_watched_is_seen_by_its_connection(self):
        worker = self.start('ends', self.service.endpoint)
        children = pathlib.Path(f'/proc/{worker.pid}/task/{worker.pid}/children').read_text()
        # the kernel kills the whole container with its first process
        subprocess.run(['kill', '-9', *children.split()], check=True)
        until(lambda: self.service.job('ends') is None, 'the job has ended')

    def worker_of(self, job):
        return self.service.job(job)['ranks'][0]


if __name__ == '__main__':
    tap.main()
