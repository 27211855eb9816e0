"""Tests several nodes on one machine. Each node is a network namespace; veth pairs connect the
nodes.

Namespaces need root. Without root the test is skipped with this reason."""
import contextlib
import os
import pathlib
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / 'bench' / 'demo'))

import tap  # noqa: E402
from harness import BENCH, GRADPOOL, Process, Service, result, until  # noqa: E402
from network import Nodes  # noqa: E402

ADDRESS = '10.77.0.1'


class NodeService(Service):
    """A service with the coordinator on node a. Each case chooses the nodes of its aggregators.
    Each node has its own key."""

    def __init__(self, nodes, *options):
        self.nodes = nodes
        self.keys = {}
        super().__init__(*options, aggregators=0)

    def start(self, name='serve', listen=None):
        command = [GRADPOOL, 'serve', '--state-dir', self.state, '--listen',
                   f'gradpool://{ADDRESS}:7077', '--aggregators', self.aggregators, *self.options]
        self.serve = Process(self.nodes.inside('a', [str(c) for c in command]), self.folder, name)
        self.children.append(self.serve)
        until(self.is_up, 'the service is up', process=self.serve)
        self.endpoint = f'gradpool://{ADDRESS}:7077'

    def key(self, tenant, *options):
        if tenant not in self.keys:
            self.keys[tenant] = self.tenant_key(tenant, *options)
        return self.keys[tenant]

    def add_aggregator(self, node, core):
        command = [GRADPOOL, 'aggregator', '--join', f'{ADDRESS}:7077', '--cores', core]
        process = Process(self.nodes.inside(node, [str(c) for c in command]), self.folder,
                          f'aggregator-{node}', self.key('nodes', '--operator'))
        self.children.append(process)
        self.aggregators += 1
        until(self.is_up, f'the aggregator of node {node} has joined', process=process)
        return process

    def worker_on(self, node, job, rank, workers, *options, prefix=()):
        command = [*prefix, BENCH, 'push', '--endpoint', self.endpoint, '--job', job,
                   '--rank', rank, '--workers', workers, '--json', *options]
        process = Process(self.nodes.inside(node, [str(c) for c in command]), self.folder,
                          f'{job}.{rank}', self.key('users'))
        self.children.append(process)
        return process


def start(cleanup, *options):
    """Starts nodes and a service. Registers the functions that end them with `cleanup`, a
    function like addCleanup."""
    nodes = Nodes()
    cleanup(nodes.remove)
    nodes.create()
    service = NodeService(nodes, *options)
    cleanup(service.end)
    return nodes, service


@unittest.skipUnless(os.geteuid() == 0, 'network namespaces need root')
class SeveralNodes(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.cleanup = contextlib.ExitStack()
        cls.nodes, cls.service = start(cls.cleanup.callback, '--worker-timeout', 10,
                                       # timeout longer than any disconnection in this test
                                       '--aggregator-timeout', 10)
        cores = sorted(os.sched_getaffinity(0))
        cls.service.add_aggregator('b', cores[0])
        cls.service.add_aggregator('c', cores[-1])

    @classmethod
    def tearDownClass(cls):
        cls.service.stop()
        cls.cleanup.close()

    def test_a_worker_in_user_and_network_namespaces_of_its_own_falls_to_tcp_with_one_line(self):
        """Simulates a container whose host name equals the host's. The worker expects shared
        memory but cannot use it."""
        unshare = ('unshare', '--user', '--map-root-user', '--uts')
        as_node_b = ('sh', '-c', 'hostname node-b && exec "$@"', 'sh')
        workers = [self.service.worker_on('a', 'apart', rank, 2, '--rounds', '20', '--tensors', '8',
                                          '--elements', '600000', prefix=(*unshare, *as_node_b))
                   for rank in range(2)]
        for worker in workers:
            self.assertEqual(result(worker)['wrong'], 0)
            lines = [line for line in worker.text().splitlines() if 'shares no memory' in line]
            self.assertEqual(len(lines), 1, worker.text())
            self.assertIn('using tcp', lines[0])

    def test_a_worker_on_a_lane_s_node_shares_memory_and_one_elsewhere_does_not(self):
        workers = [self.service.worker_on(node, 'mixed', rank, 2, '--rounds', '50',
                                          '--tensors', '6', '--elements', '300000')
                   for rank, node in enumerate('bc')]
        for worker in workers:
            self.assertEqual(result(worker)['wrong'], 0)

    def test_a_link_cut_for_two_seconds_and_restored_changes_no_bit(self):
        workers = [self.service.worker_on(node, 'cut', rank, 3, '--rounds', '600', '--verbose',
                                          '--compute-ms', '4', '--elements', '50000')
                   for rank, node in enumerate('abc')]
        workers[0].wait_for('round 50\n')
        self.nodes.cut('c')
        time.sleep(2)  # duration of the disconnection
        self.nodes.restore('c')
        for worker in workers:
            answer = result(worker)
            self.assertEqual((answer['rounds'], answer['wrong']), (600, 0))

    def test_nodes_are_shown_by_name_with_addresses_of_their_own(self):
        addresses = {lane['ofi'].rsplit(':', 1)[0] for a in self.service.status()['aggregators']
                     for lane in a['lanes']}
        self.assertEqual(addresses, {'10.77.0.2', '10.77.0.3'})
        self.assertEqual({a['node'] for a in self.service.status()['aggregators']},
                         {'node-b', 'node-c'})


if __name__ == '__main__':
    tap.main()
