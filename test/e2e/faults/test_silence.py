"""Makes a worker's host silent. The workers of this host are lost within seconds, and their jobs
fail or continue without them. A worker that is only stopped remains in its job. Prints the times.
The limits of these times leave a margin for a machine that is busy with other tests."""
import json
import os
import pathlib
import signal
import sys
import time
import unittest

import numpy

import ranks  # sets GRADPOOL_LIBRARY, before gradpool is imported
import progress
import gradpool
import test_nodes as nodes
from harness import Process, finish_training, until

SILENCE_S = 2.0 + 0.5  # --worker-timeout, and the interval of the check
BUSY = 3               # factor for a busy machine
STOPPED_S = 16         # a job with a dead connection would fail earlier
ELEMENTS = 300000
# deadline of calls: a rank that is cut off waits until its host is reachable again
WAIT_MS = 600000


def rank_goes_on(rank, workers):
    """Trains until rank 0 announces the end. Writes the end time and the ranks of each round."""
    folder = pathlib.Path(os.environ['SILENCE_FOLDER'])
    gradient = numpy.full(ELEMENTS, 2.0 ** rank, numpy.float32)
    total, stop, stopped = numpy.empty_like(gradient), numpy.zeros(1), numpy.zeros(1)
    with gradpool.connect() as client, \
            client.join('on', rank, workers, on_worker_loss='continue') as job, \
            open(folder / f'on.{rank}.rounds', 'w', buffering=1) as log:
        big, small = job.declare('big', ELEMENTS), job.declare('stop', 1, dtype='float64')
        while not stopped[0]:
            stop[0] = rank == 0 and (folder / 'stop').exists()
            items = [(big, gradient, total), (small, stop, stopped)]
            job.push_pull_group(items, 'sum').wait(WAIT_MS)
            assert (total == total[0]).all()
            log.write(f'{time.monotonic()} {int(total[0])}\n')
            time.sleep(0.003)
    return int(total[0])


@unittest.skipUnless(os.geteuid() == 0, 'network namespaces need root')
class Silence(unittest.TestCase):
    def setUp(self):
        self.nodes, self.service = nodes.start(self.addCleanup)
        self.service.add_aggregator('a', min(os.sched_getaffinity(0)))
        self.folder = self.service.folder

    def goes_on(self, node, rank, workers):
        command = [sys.executable, os.path.abspath(__file__), '--rank', 'rank_goes_on', str(rank),
                   str(workers)]
        process = Process(
            self.nodes.inside(node, command), self.folder, f'on.{rank}',
            {'SILENCE_FOLDER': str(self.folder), 'GRADPOOL_ENDPOINT': self.service.endpoint,
             'OMP_NUM_THREADS': '1', **self.service.key('users')})
        self.service.children.append(process)
        return process

    def rounds_of(self, mask):
        """Returns the end times of rank 0's rounds with exactly these ranks."""
        path = self.folder / 'on.0.rounds'
        lines = path.read_text().splitlines(True) if path.exists() else []
        return [float(line.split()[0]) for line in lines
                if line.endswith('\n') and int(line.split()[1]) == mask]

    def pushes(self, job, places):
        return [self.service.worker_on(node, job, rank, len(places), '--rounds', 1000000,
                                       '--verbose', '--elements', 50000, '--compute-ms', 3,
                                       '--timeout-ms', WAIT_MS)
                for rank, node in enumerate(places)]

    def test_workers_of_a_silent_host_are_lost_and_a_stopped_worker_is_not(self):
        stopped = self.pushes('stopped', 'ac')
        fails = self.pushes('fails', 'ab')
        goes_on = [self.goes_on(node, rank, 4) for rank, node in enumerate('abab')]
        for worker in stopped + fails:
            worker.wait_for('round 50\n')
        until(lambda: len(self.rounds_of(15)) > 50, 'all four train', process=goes_on[0])
        stopped[1].signal(signal.SIGSTOP)
        stopped_at = time.monotonic()
        time.sleep(0.5)  # waits because the stopped worker may just have sent a packet

        self.nodes.cut('b')
        watch = progress.Stopwatch()
        self.assertEqual(fails[0].wait(), 1)
        failed_s = watch.seconds()
        until(lambda: len(self.rounds_of(5)) > 50, 'two go on', process=goes_on[0])
        on_s = self.rounds_of(5)[0] - watch.began - watch.pressed_s()
        print(f'# a silent host: a job failed after {failed_s:.3f} s, another went on after '
              f'{on_s:.3f} s')
        self.assertRegex(fails[0].text(), r'rank 1 of job users/fails \(node-b, pid \d+\) is gone: '
                         r'its host has sent no answer for \d+\.\d s \(--worker-timeout\)')
        self.assertLess(max(failed_s, on_s), BUSY * SILENCE_S)

        (self.folder / 'stop').touch()
        for rank in 0, 2:
            self.assertEqual(goes_on[rank].wait(), 0, goes_on[rank].tail())
            self.assertEqual(json.loads(goes_on[rank].text().splitlines()[-1]), 5)
        self.assertIsNone(goes_on[1].child.poll())
        time.sleep(max(0, stopped_at + STOPPED_S - time.monotonic()))
        stopped[1].signal(signal.SIGCONT)
        finish_training(*stopped)
        self.nodes.restore('b')
        # the service has already ended the sessions of these workers
        for worker in fails[1], goes_on[1], goes_on[3]:
            self.assertEqual(worker.wait(60), 1)


if __name__ == '__main__':
    sys.exit(ranks.main(globals()))
