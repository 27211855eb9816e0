"""Tests lost connections between living processes: the coordinator's host name gets another
address, or a firewall drops packets of connections."""
import contextlib
import pathlib
import re
import shutil
import tempfile
import unittest

import tap
from harness import (BUILD, GRADPOOL, Process, Service, finish_training, forget_connections,
                     until)

RESOLVER = BUILD / 'test' / 'e2e' / 'libresolver.so'


class Alone(Service):
    """A service that starts no aggregators itself."""

    def __init__(self):
        super().__init__(aggregators=0)

    def is_up(self):
        with contextlib.suppress(AssertionError):  # before the service is ready, status() fails
            return bool(self.status())
        return self.serve.child.poll() is not None


class Moved(unittest.TestCase):
    """The host name of the coordinator is `pool`. The test changes the address of this name."""

    def setUp(self):
        self.service = Alone()
        self.addCleanup(self.service.end)
        self.port = self.service.endpoint.rsplit(':', 1)[1]
        self.host = self.service.folder / 'pool'
        self.lives_on('127.0.0.1')
        self.by_name = {'LD_PRELOAD': str(RESOLVER), 'TEST_RESOLVER_HOST': 'pool',
                        'TEST_RESOLVER_ADDRESS': str(self.host), 'GRADPOOL_LOG_LEVEL': 'info'}

    def lives_on(self, address):
        self.host.write_text(address)
        self.service.endpoint = f'gradpool://{address}:{self.port}'

    def process(self, name, *command):
        process = Process(command, self.service.folder, name,
                          {**self.by_name, **self.service.operator()})
        self.service.children.append(process)
        return process

    def workers(self, job, count):
        there, self.service.endpoint = self.service.endpoint, f'gradpool://pool:{self.port}'
        workers = self.service.workers(job, count, '--rounds', 1000000, '--elements', 1000,
                                       '--compute-ms', 20, '--verbose', environment=self.by_name)
        self.service.endpoint = there
        return workers

    def test_a_job_trains_on_when_the_coordinator_comes_back_on_another_host(self):
        aggregator = self.process('aggregator', GRADPOOL, 'aggregator', '--join',
                                  f'pool:{self.port}')
        until(lambda: self.service.pids('up'), 'the aggregator is up', process=aggregator)
        workers = self.workers('moved', 2)
        for worker in workers:
            worker.wait_for('round ')
        self.service.serve.kill()
        self.lives_on('127.0.0.2')
        self.service.start('serve.2')
        for worker in workers:
            worker.wait_for(f'is connected to the coordinator at gradpool://pool:{self.port} again')
        finish_training(*workers)


class OwnName(unittest.TestCase):
    """In these cases the host's own name resolves to 127.0.1.1, as in Debian's /etc/hosts."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix='gradpool-test-'))
        self.addCleanup(shutil.rmtree, self.folder, True)
        (self.folder / 'address').write_text('127.0.1.1')
        self.by_name = {'LD_PRELOAD': str(RESOLVER), 'TEST_RESOLVER_HOST': 'node7',
                        'TEST_RESOLVER_ADDRESS': str(self.folder / 'address')}

    def start(self, *command):
        process = Process([GRADPOOL, *command], self.folder, command[0], self.by_name)
        self.addCleanup(process.end)
        return process

    def test_a_service_that_other_hosts_do_not_reach_logs_the_reason(self):
        serve = self.start('serve', '--state-dir', self.folder / 's', '--aggregators', 0,
                           '--listen', 'gradpool://node7:0')
        serve.wait_for("host name 'node7' of --listen is 127.0.1.1 on this host, so other hosts")
        serve.wait_for('listening on gradpool://node7:')
        endpoint = re.search(r'listening on (gradpool://node7:\d+)', serve.text())[1]
        doctor = self.start('doctor', '--endpoint', endpoint)
        doctor.wait()
        self.assertRegex(doctor.text(), r'warn.*node7 is 127\.0\.1\.1 on this host')
        joined = self.start('aggregator', '--join', endpoint.removeprefix('gradpool://'),
                            '--cores', 0)
        joined.wait_for('which workers of other hosts cannot reach; give an address of this')

    def test_lanes_listen_where_other_hosts_reach_them(self):
        serve = self.start('serve', '--state-dir', self.folder / 's', '--aggregators', 0,
                           '--listen', 'gradpool://0.0.0.0:0', '--advertise', 'node7')
        serve.wait_for("host name 'node7' is 127.0.1.1 on this host, an address that other "
                       'hosts cannot reach: lanes listen on ')


class Forgotten(unittest.TestCase):
    """Drops the packets of connections to lanes, like a firewall that removed idle connections from
    its table. New connections work."""

    def setUp(self):
        self.service = Service(aggregators=1)
        self.addCleanup(self.service.end)
        aggregator = self.service.status()['aggregators'][0]
        self.aggregator = aggregator['pid']
        self.ports = [int(lane['ofi'].rsplit(':', 1)[1]) for lane in aggregator['lanes']]

    def forget(self, pid, end='remote'):
        found = sum(forget_connections(pid, port, end) for port in self.ports)
        self.assertGreater(found, 0)

    def test_a_job_trains_on_over_new_connections_to_the_same_lanes(self):
        workers = self.service.workers('idle', 3, '--transport', 'tcp', '--rounds', 1000000,
                                       '--tensors', 4, '--elements', 100000, '--compute-ms', 20,
                                       '--timeout-ms', 60000, '--verbose',
                                       environment={'GRADPOOL_LOG_LEVEL': 'info'})
        for worker in workers:
            worker.wait_for('round ')
        # Drops packets that arrive at worker 0 from lanes, and packets that arrive at lanes from
        # any worker. So worker 0's connections lose both directions, and those of other workers
        # lose one.
        self.forget(workers[0].pid)
        self.forget(self.aggregator, 'local')
        workers[0].wait_for('stopped answering')
        # a lane that gives up before the workers resets the connection
        for worker in workers[1:]:
            worker.wait_for('; this worker connects again')
        finish_training(*workers)
        self.assertEqual(self.service.pids(), [self.aggregator])


if __name__ == '__main__':
    tap.main()
