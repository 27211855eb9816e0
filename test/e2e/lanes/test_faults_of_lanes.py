"""Counts page faults of lane threads with the kernel's counters. There must be almost no page
faults in the first round of a new job, and during a move of 48 MiB of Adam's state. Tests shared
memory and TCP."""
import json
import pathlib
import unittest

import numpy

import ranks    # sets GRADPOOL_LIBRARY, before gradpool is imported
import tap
import gradpool
from harness import Service

FEW = 100
TRIES = 5
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
        self.count = 0

    def lane_faults(self):
        """Returns the minor and major faults of all lane threads so far."""
        faults = 0
        for pid in self.service.pids():
            for task in pathlib.Path(f'/proc/{pid}/task').iterdir():
                if (task / 'comm').read_text().strip() == 'gradpool-lane':
                    fields = (task / 'stat').read_text().rpartition(')')[2].split()
                    faults += int(fields[7]) + int(fields[9])
        return faults

    def few(self, what, prepare):
        """Counts the page faults of the call that `prepare`() returns. Makes several attempts: on a
        busy host the thread that prepares a lane's memory may be late, and the lane does not wait
        long for this thread."""
        for _ in range(TRIES):
            call = prepare()
            before = self.lane_faults()
            call()
            faults = self.lane_faults() - before
            print(f'# {what}: {faults} page faults of lanes')
            if faults < FEW:
                return
        self.fail(f'{what}: {faults} page faults of lanes')

    def connect(self, transport):
        client = gradpool.connect(self.service.endpoint, transport)
        self.addCleanup(client.close)
        return client

    def job(self, client, rule=None):
        self.count += 1
        return Job(client, f'job{self.count}', rule)

    def first_rounds(self, transport):
        client = self.connect(transport)

        def prepare():
            job = self.job(client)
            return lambda: self.assertEqual(job.add(), [WORKERS] * WORKERS)
        for _ in range(2):
            self.few(f'a first round over {transport}', prepare)

    def test_a_new_job_s_first_round_has_few_page_faults_shm(self):
        self.first_rounds('shm')

    def test_a_new_job_s_first_round_has_few_page_faults_tcp(self):
        self.first_rounds('tcp')

    def lend_later(self, client):
        job = self.job(client)
        job.add()
        more = [j.declare('more', ELEMENTS) for j in job.jobs]
        areas = [numpy.frombuffer(j.alloc(4 * ELEMENTS), numpy.float32) for j in job.jobs]
        for values in areas:
            values[:] = 1
        job.tensors, job.gradients = more, areas
        return job.add

    def test_memory_that_is_lent_later_has_few_page_faults(self):
        client = self.connect('shm')
        self.few('a first round in memory that is lent later', lambda: self.lend_later(client))

    def place_of(self, name):
        answer = self.service.ask('explain', name, '--json')
        return json.loads(answer.stdout)['jobs'][0]['tasks'][0]['lane']

    def moves(self, transport):
        lanes = [lane['lane'] for a in self.service.serving() for lane in a['lanes']]
        client, jobs = self.connect(transport), []

        def begin():
            jobs.append(self.job(client, rule='adam'))
            jobs[-1].broadcast()
            return lambda: [jobs[-1].update() for _ in range(2)]
        self.few(f'first updates over {transport}', begin)
        name = f'job{self.count}'

        def move():
            target = next(lane for lane in lanes if lane != self.place_of(name))
            mover = self.service.ask('move', name, str(target))
            self.assertEqual(mover.returncode, 0, mover.stderr)
            for _ in range(3):
                jobs[-1].update()
        for _ in range(3):
            self.few(f'a move over {transport}, and three updates', lambda: move)

    def test_a_move_has_few_page_faults_shm(self):
        self.moves('shm')

    def test_a_move_has_few_page_faults_tcp(self):
        self.moves('tcp')


if __name__ == '__main__':
    tap.main()
