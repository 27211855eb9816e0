"""Tests that parameters survive dead lanes in elastic jobs. Copies are in workers' memory
(--durability worker) or on other aggregators (--durability replica). Workers are killed and started
again, so the number of workers changes. After each change aggregators are killed. Workers that have
run from the beginning compute each step with numpy, too: their results differ at once if a lane
lost a moment or a step."""
import os
import pathlib
import subprocess
import sys
import threading
import time
import zlib

import numpy

import harness
import ranks  # sets GRADPOOL_LIBRARY, before gradpool is imported
import gradpool
import test_members as members
from harness import until

SIZES = members.SIZES
# with powers of two, results do not depend on fused operations, which numpy lacks
RATE, MOMENTUM = 2.0 ** -8, 0.5
LOSSES, RESIZES = (4, 6) if os.environ.get('GRADPOOL_TEST_LONG') else (1, 2)
# number of elements that are compared first, to find the ranks of a step quickly
PROBE = 64


def gradient(name, rank):
    """Returns the rank's gradient. The gradient is equal in all steps, because a late worker does
    not know the number of the step."""
    return numpy.random.default_rng([rank, SIZES[name]]).random(SIZES[name],
                                                                dtype=numpy.float32)


class Model:
    """The expected state of a tensor in its lane."""

    def __init__(self, name, rank, most):
        self.gradients = [gradient(name, other) for other in range(most)]
        self.values = gradient(name, 1000)
        self.momentum, self.rank, self.mask = None, rank, 0
        self.known = 0, None   # the last set of ranks, and the mean gradient of these ranks

    def mean(self, mask, upto):
        """Returns the mean of the gradients of these ranks. The last full mean is cached,
        because the set of ranks seldom changes."""
        if self.known[0] == mask:
            return self.known[1][:upto]
        total, count = None, 0
        for rank, values in enumerate(self.gradients):
            if mask >> rank & 1:
                total = values[:upto] if total is None else total + values[:upto]
                count += 1
        mean = total / numpy.float32(count)
        if upto is None:
            self.known = mask, mean
        return mean

    def step(self, mask, upto=None):
        """Returns (values, momentum) after a step with the gradients of these ranks."""
        mean = self.mean(mask, upto)
        momentum = mean if self.momentum is None else \
            numpy.float32(MOMENTUM) * self.momentum[:upto] + mean
        return self.values[:upto] - numpy.float32(RATE) * momentum, momentum

    def follow(self, result):
        """Finds the ranks whose gradients give this result. Tries the last set first, because
        the set seldom changes."""
        sets = [mask for mask in range(1, 1 << len(self.gradients)) if mask >> self.rank & 1]
        for mask in [self.mask] * (self.mask > 0) + sets:
            if numpy.array_equal(self.step(mask, PROBE)[0], result[:PROBE]):
                self.mask = mask
                self.values, self.momentum = self.step(mask)
                if not numpy.array_equal(self.values, result):
                    raise AssertionError(f'{(self.values != result).sum()} elements are wrong')
                return mask
        raise AssertionError(f'these are the parameters of no set of ranks; before: {self.mask:b}')


def rank_updates(rank, workers):
    """Trains until rank 0 announces the end. Writes one line for each step and tensor: the ranks of
    the step, and a checksum of the result."""
    folder, most = pathlib.Path(os.environ['MEMBERS_FOLDER']), int(os.environ['MEMBERS_MAX'])
    gradients = {name: gradient(name, rank) for name in SIZES}
    models = None if os.environ['MEMBERS_LATE'] else {n: Model(n, rank, most) for n in SIZES}
    results = {name: gradient(name, 1000) for name in SIZES}
    said, told = numpy.zeros(2, numpy.float32), numpy.zeros(2, numpy.float32)
    said[0] = 2.0 ** rank
    with gradpool.connect(transport=os.environ['MEMBERS_TRANSPORT']) as client, \
            client.join('job', rank, workers, workers_max=most, on_worker_loss='continue',
                        durability=os.environ['MEMBERS_DURABILITY']) as job, \
            open(folder / f'{rank}.{os.getpid()}', 'w', buffering=1) as log:
        tensors = job.declare_all(SIZES, rule='momentum')
        who = job.declare('who', 2)
        for tensor in tensors if models else []:
            job.broadcast(tensor, results[tensor.name]).wait(members.WAIT_MS)
        count, resizing = 0, None
        while not told[1] and rank < job.members().wanted:
            is_asked = rank == 0 and (folder / 'wanted').exists()
            if is_asked and not (resizing and resizing.is_alive()):
                wanted = int((folder / 'wanted').read_text())
                resizing = threading.Thread(target=job.resize, args=(wanted, members.WAIT_MS))
                resizing.start()
                (folder / 'wanted').unlink()
            said[1] = rank == 0 and (folder / 'stop').exists()
            # A late worker may join the two tensors at different steps, so one request starts the
            # rounds of both tensors.
            for request in [job.update_group([(t, gradients[t.name], results[t.name]) for t in
                                              tensors], lr=RATE, momentum=MOMENTUM),
                            job.push_pull_group([(who, said, told)], 'sum')]:
                request.wait(members.WAIT_MS)
            count += 1
            time.sleep(members.COMPUTES_S)
            for name, values in results.items():
                if models:
                    models[name].follow(values)
                log.write(f'{count} {name} {int(told[0])} {zlib.crc32(values)}\n')
    return count


class Case(members.Case):
    # If an aggregator has died five times in a minute, the coordinator delays its restart. So the
    # test starts several aggregators.
    AGGREGATORS = 4

    def start(self, rank, transport, most=members.WORKERS, late=True):
        environment = {**os.environ, 'OMP_NUM_THREADS': '1', 'MEMBERS_FOLDER': str(self.folder),
                       'GRADPOOL_ENDPOINT': self.service.endpoint, 'MEMBERS_LATE': 'x' * late,
                       'MEMBERS_TRANSPORT': transport, 'MEMBERS_MAX': str(most),
                       'MEMBERS_DURABILITY': self.KIND}
        self.running[rank] = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), '--rank', 'rank_updates', str(rank),
             str(max(members.WORKERS, rank + 1))], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, env=environment)

    def begin(self, transport, most=members.WORKERS):
        for rank in range(members.WORKERS):
            self.start(rank, transport, most, late=False)
        self.await_set(range(members.WORKERS))
        self.kills = 0

    def move(self):
        """Moves all tasks of the job to another lane. The lane then makes new copies."""
        def moves():
            lanes = [lane['lane'] for a in self.service.serving() for lane in a['lanes']]
            answer = self.service.ask('move', 'job', str(self.random.choice(lanes)))
            said.append(answer.stderr)
            return answer.returncode == 0
        said = []
        until(moves, lambda: f'the job moves: {said}', process=self.service.serve)
        done = len(self.log(0))
        until(lambda: len(self.log(0)) >= done + 2 * len(SIZES) or self.running[0].poll() is not
              None, 'rounds after a move', process=self.service.serve)

    def owners(self):
        lanes = self.service.job('job')['lanes']
        return [a['pid'] for a in self.service.serving()
                if any(lane['lane'] in lanes for lane in a['lanes'])]

    def kill_an_owner(self, rank=None):
        """Kills an aggregator with tasks of the job, and the worker of that rank. Then waits for a
        round on the new owner."""
        self.move()
        self.await_copies()
        until(self.owners, 'the job has an owner', process=self.service.serve)
        os.kill(self.random.choice(self.owners()), 9)
        self.kills += 1
        if rank is not None:
            time.sleep(self.random.choice((0, 0.001, 0.01)))
            self.running[rank].kill()
            self.running.pop(rank).communicate()
        done = len(self.log(0))
        until(lambda: len(self.log(0)) >= done + 3 * len(SIZES) or self.running[0].poll() is not
              None, 'rounds after the loss of a lane', process=self.service.serve)
        for rank, process in self.running.items():
            self.assertIsNone(process.poll(), process.poll() is not None and
                              f'rank {rank}: {process.communicate()[1]}')

    def check_late(self):
        """Checks that each result of a late worker is also a result of rank 0."""
        known = {(name, crc) for _, name, _, crc in self.log(0)}
        for rank in self.running:
            # the worker may receive rank 0's announcement of the end one step later than rank 0
            lines = self.log(rank)[:-len(SIZES)]
            wrong = [line for line in lines if (line[1], line[3]) not in known]
            self.assertEqual(wrong, [], f'rank {rank}')

    def come_and_go(self, transport, times):
        everybody = set(range(members.WORKERS))
        self.begin(transport)
        for _ in range(times):
            victim = self.random.randrange(1, members.WORKERS)
            # so that the kill happens at a random point of a round
            time.sleep(self.random.uniform(0.02, 0.3))
            self.running[victim].kill()
            self.running.pop(victim).communicate()
            self.await_set(everybody - {victim})
            self.kill_an_owner()
            self.start(victim, transport)
            self.await_set(everybody)
            self.kill_an_owner()
        self.finish()
        self.check_late()
        self.assertGreater(self.kills, times)
        print(f'# {transport}: {len(self.log(0)) // len(SIZES)} steps, {times} workers killed and '
              f'come back, {self.kills} aggregators killed (seed {members.SEED})')

    def resize(self, transport, times):
        self.begin(transport, most=6)
        present = members.WORKERS
        for _ in range(times):
            wanted = self.random.choice([n for n in range(2, 7) if n != present])
            members.Resizes.ask(self, wanted)
            for rank in range(wanted, present):
                process = self.running.pop(rank)
                errors = harness.finish(process, 60)[1]
                self.assertEqual(process.returncode, 0, f'rank {rank}: {errors}')
            for rank in range(present, wanted):
                self.start(rank, transport, most=6)
            self.await_set(range(wanted))
            self.kill_an_owner()
            present = wanted
        self.finish()
        self.check_late()
        print(f'# {transport}: {len(self.log(0)) // len(SIZES)} steps, {times} times resized, '
              f'{self.kills} aggregators killed (seed {members.SEED})')


class InWorkers(Case):
    KIND = 'worker'

    def await_copies(self):
        """Returns at once: each worker has a copy after each round, so nothing must be awaited."""

    def test_parameters_survive_when_a_worker_dies_and_then_a_lane_shm(self):
        self.come_and_go('shm', LOSSES)

    def test_parameters_survive_when_a_worker_dies_and_then_a_lane_tcp(self):
        self.come_and_go('tcp', LOSSES)

    def test_parameters_survive_when_a_job_is_resized_and_then_a_lane_dies_shm(self):
        self.resize('shm', RESIZES)

    def test_parameters_survive_when_a_job_is_resized_and_then_a_lane_dies_tcp(self):
        self.resize('tcp', RESIZES)


class Replicas(Case):
    KIND = 'replica'

    def await_copies(self):
        """Waits until all states have copies again. The copies on the last killed aggregator have
        to be replaced."""
        def are_copied():
            use = self.service.job('job')['use']
            return use.get('states') and use['copied'] == use['states']
        until(are_copied, 'each state has a copy', process=self.service.serve)

    def test_parameters_survive_when_a_worker_dies_and_then_a_lane_shm(self):
        self.come_and_go('shm', LOSSES)

    def test_parameters_survive_when_a_worker_dies_and_then_a_lane_tcp(self):
        self.come_and_go('tcp', LOSSES)

    def test_parameters_survive_when_a_job_is_resized_and_then_a_lane_dies_tcp(self):
        self.resize('tcp', RESIZES)

    def lose_both(self, transport, times):
        """Kills an owner and a worker together. The worker's gradient is lost, so no rank may have
        received a result of a step whose state is lost."""
        everybody = set(range(members.WORKERS))
        self.begin(transport)
        for _ in range(times):
            victim = self.random.randrange(1, members.WORKERS)
            self.kill_an_owner(victim)
            self.await_set(everybody - {victim})
            self.start(victim, transport)
            self.await_set(everybody)
        self.finish()
        self.check_late()
        print(f'# {transport}: {len(self.log(0)) // len(SIZES)} steps, {self.kills} aggregators '
              f'killed, each with a worker (seed {members.SEED})')

    def test_parameters_survive_when_a_lane_and_a_worker_die_at_once_shm(self):
        self.lose_both('shm', LOSSES)

    def test_parameters_survive_when_a_lane_and_a_worker_die_at_once_tcp(self):
        self.lose_both('tcp', LOSSES)


if __name__ == '__main__':
    ranks.main(globals())
