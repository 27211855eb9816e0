"""Tests copies of parameters and moments on the aggregator of another host. Copies are written and
read over the network. Each aggregator runs in its own network namespace and shares no memory.
Owners are killed one after the other. Both workers compute each step with numpy."""
import json
import os
import pathlib
import signal
import sys
import unittest

import numpy

import ranks  # sets GRADPOOL_LIBRARY, before gradpool is imported
import gradpool
import test_nodes as nodes
from harness import Process, until

ELEMENTS = {'short': 500, 'long': 300000}
# with powers of two, results do not depend on fused operations, which numpy lacks
RATE, MOMENTUM = 2.0 ** -8, 0.5
KILLS = 4
WAIT_MS = 60000


def gradient(name, rank):
    return numpy.random.default_rng([rank, ELEMENTS[name]]).random(
        ELEMENTS[name], dtype=numpy.float32)


def rank_steps(rank, workers):
    """Trains until rank 0 finds the file that requests the end. Writes one line for each step."""
    folder = pathlib.Path(os.environ['FAR_FOLDER'])
    first = {name: gradient(name, 1000) for name in ELEMENTS}
    mean = {name: sum(gradient(name, r) for r in range(1, workers)) for name in ELEMENTS}
    mean = {name: (gradient(name, 0) + mean[name]) / numpy.float32(workers) for name in ELEMENTS}
    values = {name: first[name].copy() for name in ELEMENTS}
    momentum, stop, stopped = {}, numpy.zeros(1), numpy.zeros(1)
    with gradpool.connect() as client, \
            client.join('far', rank, workers, durability='replica') as job, \
            open(folder / f'far.{rank}.steps', 'w', buffering=1) as log:
        tensors = job.declare_all(ELEMENTS, rule='momentum')
        end = job.declare('end', 1, dtype='float64')
        for tensor in tensors:
            job.broadcast(tensor, values[tensor.name]).wait(WAIT_MS)
        count = 0
        while not stopped[0]:
            stop[0] = rank == 0 and (folder / 'stop').exists()
            job.update_group([(t, gradient(t.name, rank), values[t.name]) for t in tensors],
                             lr=RATE, momentum=MOMENTUM).wait(WAIT_MS)
            job.push_pull_group([(end, stop, stopped)], 'sum').wait(WAIT_MS)
            for name in ELEMENTS:
                momentum[name] = mean[name] if name not in momentum else \
                    numpy.float32(MOMENTUM) * momentum[name] + mean[name]
                first[name] -= numpy.float32(RATE) * momentum[name]
                numpy.testing.assert_array_equal(values[name], first[name])
            count += 1
            log.write(f'{count}\n')
    return count


@unittest.skipUnless(os.geteuid() == 0, 'network namespaces need root')
class FarCopies(unittest.TestCase):
    def setUp(self):
        # three aggregators share a core, so an aggregator may be stopped for longer than the
        # default timeout
        self.nodes, self.service = nodes.start(self.addCleanup, '--aggregator-timeout', 6)
        self.core = sorted(os.sched_getaffinity(0))[-1]
        for node in 'abc':
            self.service.add_aggregator(node, self.core)

    def start(self, rank, node):
        environment = {**self.service.key('users'), 'FAR_FOLDER': str(self.service.folder),
                       'GRADPOOL_ENDPOINT': self.service.endpoint, 'OMP_NUM_THREADS': '1'}
        command = [sys.executable, os.path.abspath(__file__), '--rank', 'rank_steps', str(rank),
                   '2']
        process = Process(self.nodes.inside(node, command), self.service.folder, f'far-{rank}',
                          environment)
        self.service.children.append(process)
        return process

    def steps(self):
        path = self.service.folder / 'far.0.steps'
        return len(path.read_text().splitlines()) if path.exists() else 0

    def is_copied(self):
        job = self.service.job('far')
        use = job['use'] if job else {}
        return use.get('states') and use['states'] == use['copied']

    def kill_owner(self):
        """Kills the host that has most tasks of the job. A new aggregator then starts on this
        host."""
        lanes = self.service.job('far')['lanes']
        owner = next(a for a in self.service.serving()
                     if any(lane['lane'] in lanes for lane in a['lanes']))
        os.kill(owner['pid'], signal.SIGKILL)
        self.service.aggregators -= 1
        return owner['node'].rpartition('-')[2]

    def test_training_goes_on_to_the_same_bits_when_owners_die(self):
        workers = [self.start(rank, node) for rank, node in enumerate('ab')]
        for _ in range(KILLS):
            until(self.is_copied, 'each state has a copy', process=workers[0])
            node, done = self.kill_owner(), self.steps()
            until(lambda: self.steps() >= done + 3 or any(w.child.poll() is not None
                                                          for w in workers),
                  'steps after the loss of an owner', process=workers[0])
            self.service.add_aggregator(node, self.core)
        (self.service.folder / 'stop').touch()
        for worker in workers:
            self.assertEqual(worker.wait(60), 0, worker.tail())
        print(f'# {self.steps()} steps, {KILLS} owners killed: '
              f'{json.dumps(self.service.status()["aggregators"][-1]["node"])} came last')


if __name__ == '__main__':
    ranks.main(globals())
