"""Chooses where the processes of the demo run: all on this host, or on several nodes. A node is a
network namespace.

veth pairs connect the nodes to one bridge in a further namespace. The network of the host is not
changed. All nodes have the same clock, files and process ids; only their networks differ."""
import dataclasses
import os
import subprocess

from children import Failed

NODES = ('a', 'b', 'c')
COMMAND_TIMEOUT_S = 20


@dataclasses.dataclass
class Place:
    """Nodes and addresses of the service's processes."""
    node: str                       # node of the coordinator
    address: str
    port: int
    local_aggregators: int = 0
    aggregator_nodes: tuple = ()

    def needs_keys(self):
        """Returns whether clients on other nodes need a key."""
        return bool(self.aggregator_nodes)

    def aggregator_options(self, node):
        """Returns options for the cores of an aggregator. Two aggregators on one host divide its
        cores, as with `serve --aggregators 2`."""
        cores = sorted(os.sched_getaffinity(0))
        index, count = self.aggregator_nodes.index(node), len(self.aggregator_nodes)
        mine = cores[index::count] or cores[:1]
        return ['--cores', ','.join(map(str, mine)), '--orphan-timeout', '60']


class Host:
    """All processes run on this host."""

    can_cut = False
    text = 'this host'

    def service_place(self):
        return Place('', '127.0.0.1', 0, local_aggregators=2)

    def inside(self, node, argv):
        return argv

    def node_of(self, job, rank):
        return ''

    def environment(self):
        """Returns variables of gloo, which only connects the ranks at the start, over loopback."""
        return {'GLOO_SOCKET_IFNAME': 'lo'}

    def remove(self):
        pass


class Nodes:
    """The coordinator runs on node a, aggregators on b and c, workers on all three."""

    can_cut = True
    text = 'three nodes: coordinator on a, an aggregator each on b and c, workers on a, b and c'
    _workers = {'digits': ('b', 'c'), 'cancer': ('a', 'b', 'c')}

    def __init__(self):
        self._prefix = f'gradpool-{os.getpid()}'
        self._made = []

    def create(self):
        """Creates the hub and the nodes. Needs root."""
        self._add('hub')
        self._ip('-n', self._name('hub'), 'link', 'add', 'bridge', 'type', 'bridge')
        self._ip('-n', self._name('hub'), 'link', 'set', 'bridge', 'up')
        for number, node in enumerate(NODES, 1):
            name = self._name(node)
            self._add(node)
            self._ip('link', 'add', 'eth0', 'netns', name, 'type', 'veth',
                     'peer', 'name', f'port-{node}', 'netns', self._name('hub'))
            self._ip('-n', self._name('hub'), 'link', 'set', f'port-{node}', 'master', 'bridge')
            self._ip('-n', self._name('hub'), 'link', 'set', f'port-{node}', 'up')
            self._ip('-n', name, 'address', 'add', f'10.77.0.{number}/24', 'dev', 'eth0')
            self._ip('-n', name, 'link', 'set', 'lo', 'up')
            self._ip('-n', name, 'link', 'set', 'eth0', 'up')

    def _name(self, node):
        return f'{self._prefix}-{node}'

    def _add(self, node):
        self._made.append(node)
        self._ip('netns', 'add', self._name(node))

    @staticmethod
    def _ip(*arguments):
        done = subprocess.run(['ip', *arguments], capture_output=True, text=True, check=False,
                              timeout=COMMAND_TIMEOUT_S)
        if done.returncode != 0:
            raise Failed(f'ip {" ".join(arguments)}: {done.stderr.strip()}')

    def service_place(self):
        return Place('a', '10.77.0.1', 7077, aggregator_nodes=('b', 'c'))

    def inside(self, node, argv):
        """Returns the command that runs argv on a node, with the host name of the node."""
        return ['nsenter', f'--net=/run/netns/{self._name(node)}', 'unshare', '--uts', 'sh', '-c',
                'hostname "$0" && exec "$@"', f'node-{node}', *argv]

    def node_of(self, job, rank):
        return self._workers[job][rank]

    def environment(self):
        return {'GLOO_SOCKET_IFNAME': 'eth0'}

    def cut(self, node):
        """Disconnects the node: no packet reaches it or leaves it."""
        self._ip('-n', self._name('hub'), 'link', 'set', f'port-{node}', 'down')

    def restore(self, node):
        self._ip('-n', self._name('hub'), 'link', 'set', f'port-{node}', 'up')

    def remove(self):
        """Removes the namespaces. Links end with their namespace, and a namespace with its last
        process."""
        for node in self._made:
            subprocess.run(['ip', 'netns', 'delete', self._name(node)], capture_output=True,
                           check=False, timeout=COMMAND_TIMEOUT_S)
