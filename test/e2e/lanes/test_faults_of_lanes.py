"""Counts page faults of lane threads with the kernel's counters. There must be almost none in a new
job's first round, nor around a move of 48 MiB of Adam's state. Tests shared memory and TCP."""
import json
import pathlib
import unittest

import numpy

import ranks    # sets GRADPOOL_LIBRARY, before gradpool is imported
import tap
import gradpool
from harness import Service

FEW = 100
WORKERS = 2
ELEMENTS = 4 << 20
WAIT_MS = 60000


class Job:
    """All ranks of a job, in this process. Each rank has its gradient and its result in shared
    memory."""

    def __init__(self, client, name, rule=None):
        self.jobs = [client.join(name, rank, WORKERS) for rank in range(WORKERS)]
        self.tensors = [job.declare('w', ELEMENTS, rule=rule) for job in self.jobs]
        self.gradients, self.results = (
            [numpy.frombuffer(job.alloc(4 * ELEMENTS), numpy.float32) for job in self.jobs]
            for _ in range(2))
        for values in self.gradients:
            values[:] = 1

    def all_ranks(self, start):
        ranks_of = zip(self.jobs, self.tensors, self.gradients, self.results)
        for request in [start(*rank) for rank in ranks_of]:
            request.wait(WAIT_MS)

    def add(self):
        self.all_ranks(lambda j, t, g, r: j.push_pull(t, g, r, operation='sum'))
        return [float(values[-1]) for values in self.results]

    def broadcast(self):
        self.all_ranks(lambda j, t, g, r: j.broadcast(t, r))

    def update(self):
        self.all_ranks(lambda j, t, g, r: j.update(t, g, r, lr=0.1))


class Faults(unittest.TestCase):
    def setUp(self):
        self.service = Service('--cores', 1, '--scale', 'off')
        self.addCleanup(self.service.end)

    def lane_faults(self):
        """Returns the minor and major faults of all lane threads so far."""
        faults = 0
        for pid in self.service.pids():
            for task in pathlib.Path(f'/proc/{pid}/task').iterdir():
                if (task / 'comm').read_text().strip() == 'gradpool-lane':
                    fields = (task / 'stat').read_text().rpartition(')')[2].split()
                    faults += int(fields[7]) + int(fields[9])
        return faults

    def few(self, what, action):
        before = self.lane_faults()
        done = action()
        faults = self.lane_faults() - before
        print(f'# {what}: {faults} page faults of lanes')
        self.assertLess(faults, FEW, what)
        return done

    def connect(self, transport):
        client = gradpool.connect(self.service.endpoint, transport)
        self.addCleanup(client.close)
        return client

    def first_rounds(self, transport):
        client = self.connect(transport)
        for number in range(2):
            job = Job(client, f'sum{number}')
            sums = self.few(f'a first round over {transport}', job.add)
            self.assertEqual(sums, [WORKERS] * WORKERS)

    def test_a_new_job_s_first_round_has_few_page_faults_shm(self):
        self.first_rounds('shm')

    def test_a_new_job_s_first_round_has_few_page_faults_tcp(self):
        self.first_rounds('tcp')

    def test_memory_that_is_lent_later_has_few_page_faults(self):
        job = Job(self.connect('shm'), 'later')
        job.add()
        more = [j.declare('more', ELEMENTS) for j in job.jobs]
        areas = [numpy.frombuffer(j.alloc(4 * ELEMENTS), numpy.float32) for j in job.jobs]
        for values in areas:
            values[:] = 1
        job.tensors, job.gradients = more, areas
        self.few('a first round in memory that is lent later', job.add)

    def place_of(self, name):
        answer = self.service.ask('explain', name, '--json')
        return json.loads(answer.stdout)['jobs'][0]['tasks'][0]['lane']

    def moves(self, transport):
        lanes = [lane['lane'] for a in self.service.serving() for lane in a['lanes']]
        job = Job(self.connect(transport), 'adam', rule='adam')
        job.broadcast()
        self.few(f'first updates over {transport}', lambda: [job.update() for _ in range(2)])

        def move():
            target = next(lane for lane in lanes if lane != self.place_of('adam'))
            mover = self.service.ask('move', 'adam', str(target))
            self.assertEqual(mover.returncode, 0, mover.stderr)
            for _ in range(3):
                job.update()
        for _ in range(3):
            self.few(f'a move over {transport}, and three updates', move)

    def test_a_move_has_few_page_faults_shm(self):
        self.moves('shm')

    def test_a_move_has_few_page_faults_tcp(self):
        self.moves('tcp')


if __name__ == '__main__':
    tap.main()
