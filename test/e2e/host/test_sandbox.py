"""Tests system calls refused by a sandbox. Gradpool must work without the refused call, or fail
with an error that names the call."""
import os
import subprocess
import sys
import unittest

import harness
import ranks    # noqa: sets GRADPOOL_LIBRARY
import tap
from harness import BUILD, GRADPOOL, Service, until

DENY = BUILD / 'test/e2e/deny_calls'
WORKER = """
import numpy, gradpool
with gradpool.connect() as client, client.join() as job:
    values = numpy.ones(1000, numpy.float32)
    job.push_pull(job.declare('w', 1000), values, operation='sum').wait()
    print('sum', values[0])
"""


def without(call):
    """Returns words in front of a command that make the system call fail. SkipTest: this host
    permits no seccomp filter."""
    if subprocess.run([DENY, call, 'true'], capture_output=True).returncode:
        raise unittest.SkipTest('no seccomp filter can be installed here')
    return str(DENY), call


class Sandbox(unittest.TestCase):
    def serve(self, *before):
        service = Service(aggregators=1, before=before)
        self.addCleanup(service.end)
        return service

    def push(self, service, *before, **environment):
        return harness.run(
            [*before, sys.executable, '-c', WORKER], capture_output=True, text=True,
            env={**os.environ, 'GRADPOOL_ENDPOINT': service.endpoint, 'GRADPOOL_JOB': 'job',
                 'RANK': '0', 'WORLD_SIZE': '1', 'GRADPOOL_TIMEOUT_MS': '20000', **environment})

    def pushes(self, *how, **environment):
        done = self.push(*how, **environment)
        self.assertEqual((done.returncode, done.stdout), (0, 'sum 1.0\n'), done.stderr)
        return done.stderr

    def test_a_worker_without_memfd_create_lends_plain_memory_over_tcp(self):
        before, service = without('memfd_create'), self.serve()
        self.assertIn('memfd_create is refused here', self.pushes(service, *before))
        self.assertEqual(self.pushes(service, *before, GRADPOOL_TRANSPORT='tcp'), '')
        refused = self.push(service, *before, GRADPOOL_TRANSPORT='shm')
        self.assertEqual(refused.returncode, 1)
        self.assertIn('memfd_create is refused here; allow it in the seccomp profile',
                      refused.stderr)
        self.assertIn(' cannot be reached by shm: ', refused.stderr)

    def test_lanes_without_memfd_create_offer_the_network_alone(self):
        service = self.serve(*without('memfd_create'))
        self.assertIn('memfd_create is refused (Operation not permitted)', service.serve.text())
        self.assertIn(' (the lane offers no shared memory); using tcp', self.pushes(service))

    def test_without_pidfd_open_the_end_of_an_aggregator_is_seen_by_a_pipe(self):
        service = self.serve(*without('pidfd_open'))
        self.assertIn('pidfd_open is refused (Operation not permitted)', service.serve.text())
        self.assertIn('): the service detects the end of a process only by its connection or a '
                      'pipe; allow pidfd_open in the seccomp profile', service.serve.text())
        self.pushes(service)
        before = service.pids()
        os.kill(*before, 9)
        until(lambda: service.pids('up') not in ([], before), 'another aggregator is up',
              process=service.serve)
        self.assertIn('killed by signal 9', service.serve.text())
        self.pushes(service)
        self.assertEqual(service.stop(), 0)

    def test_doctor_names_the_refused_calls(self):
        for call, check in ('memfd_create', 'memfd'), ('pidfd_open', 'pidfd'):
            said = subprocess.run([*without(call), GRADPOOL, 'doctor'], capture_output=True,
                                  text=True).stdout
            self.assertRegex(said, rf'(?m)^warn +{check} .*{call} is refused')


if __name__ == '__main__':
    tap.main()
