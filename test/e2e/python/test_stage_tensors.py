"""Tests dense tensors in jobs with stages: each round has the members of the present stage, the
lanes keep parameters and moments, and the bits are those of one process. Aggregators and workers
are killed near a border."""
import concurrent.futures
import errno
import os
import signal
import tempfile

import numpy

import harness
import python_case
import ranks
import gradpool
from python_case import Case, setUpModule, tearDownModule  # noqa: F401
from test_stages import LONG_MS, together

WORKERS, SIZE, STEPS, REPEAT = 4, 1000, 3, 2
LIMITS = {'timeout_ms': LONG_MS, 'idle_timeout_ms': LONG_MS}
MOMENTUM, RATE = 0.5, 0.25      # powers of two: the reference has no rounding of its own
PLAN = [{'name': 'wide', 'workers': WORKERS}, {'name': 'one', 'workers': 1, 'visit': 'travel'},
        {'name': 'pair', 'workers': 2, 'visit': 'travel'}, {'name': 'three', 'workers': 3}]


def gradient(weights, number, step, rank):
    """Returns a gradient that depends on the parameters. Its values have few binary digits."""
    drawn = numpy.random.default_rng([number, step, rank]).integers(-8, 9, SIZE)
    return ((drawn + numpy.round(weights)) / 8).astype(numpy.float32)


def train_alone(stages):
    """The training of train() in one process. `stages`: the members of each stage."""
    weights, moment, total = (numpy.zeros(SIZE, numpy.float32) for _ in range(3))
    weights += 1
    is_first = True
    for number, members in enumerate(stages, 1):
        for step in range(STEPS):
            parts = [gradient(weights, number, step, rank) for rank in members]
            whole = numpy.zeros(SIZE, numpy.float32)
            for part in parts:
                whole += part
            total += whole
            mean = whole / numpy.float32(len(members))
            moment = mean if is_first else numpy.float32(MOMENTUM) * moment + mean
            weights = (weights - numpy.float32(RATE) * moment).astype(numpy.float32)
            is_first = False
    return weights.tobytes(), total.tobytes()


class Trainer:
    """One rank. `weights` and `total` are carried to new members; the moments are on the lanes."""

    def __init__(self, job):
        self.job, self.members = job, []
        self.w = job.declare('w', SIZE, rule='momentum')
        self.g = job.declare('g', SIZE)
        self.weights = numpy.ones(SIZE, numpy.float32)
        self.total = numpy.zeros(SIZE, numpy.float32)
        job.broadcast(self.w, self.weights).wait(LONG_MS)

    def step(self, number, step):
        mine = gradient(self.weights, number, step, self.job.rank)
        whole = mine.copy()
        asked = self.job.push_pull(self.g, whole, operation='sum')
        self.job.update(self.w, mine, self.weights, lr=RATE, momentum=MOMENTUM).wait(LONG_MS)
        asked.wait(LONG_MS)
        self.total += whole

    def train(self, repeat=REPEAT, between=None):
        plan = [{**entry, 'carry': [self.weights, self.total]} for entry in PLAN]
        for stage in self.job.stages(plan, repeat=repeat, **LIMITS):
            self.members.append(stage.place is not None)
            if between:
                between(stage)
            for step in range(STEPS if stage.place is not None else 0):
                self.step(stage.number, step)
        return self


def members_of(trainers):
    return [[rank for rank, is_member in enumerate(of_stage) if is_member]
            for of_stage in zip(*(trainer.members for trainer in trainers))]


class Training(Case):
    def check(self, trainers):
        stages = members_of(trainers)
        self.assertEqual([len(members) for members in stages],
                         [entry['workers'] for entry in PLAN] * REPEAT)
        self.assertGreater(len({tuple(members) for members in stages}), 4)
        alone = train_alone(stages)
        for rank in stages[-1]:
            self.assertEqual(trainers[rank].weights.tobytes(), alone[0], rank)
            self.assertEqual(trainers[rank].total.tobytes(), alone[1], rank)
        return alone

    def train(self, transport, service=None, between=None, **options):
        service = service or python_case.service
        client = gradpool.connect(service.endpoint, transport)
        self.addCleanup(client.close)
        jobs = [client.join(self.id().rsplit('.', 1)[-1], rank, WORKERS, **options)
                for rank in range(WORKERS)]
        trainers = together(jobs, Trainer)
        self.check(together(trainers, lambda trainer: trainer.train(
            between=between and trainer.job.rank == 0 and between or None)))
        return trainers

    def check_after(self, trainers):
        """After the last stage all ranks take part again."""
        def work(trainer):
            whole = numpy.ones(SIZE, numpy.float32)
            trainer.job.push_pull(trainer.g, whole, operation='sum').wait(LONG_MS)
            return whole[0].item()
        self.assertEqual(together(trainers, work), [WORKERS] * WORKERS)

    def test_stages_have_the_bits_of_one_process_over_shm(self):
        self.check_after(self.train('shm'))

    def test_stages_have_the_bits_of_one_process_over_tcp(self):
        self.check_after(self.train('tcp'))


# ---- losses near a border ----

class Losses(Training):
    test_stages_have_the_bits_of_one_process_over_shm = None
    test_stages_have_the_bits_of_one_process_over_tcp = None

    def kill_owners(self, transport, durability):
        service = harness.Service('--durability', durability, aggregators=3)
        self.addCleanup(service.end)
        name = self.id().rsplit('.', 1)[-1]

        def is_copied():
            use = service.job(name)['use']
            return use.get('states', 0) > 0 and use['copied'] == use['states']

        def between(stage):
            """Kills the owner of the parameters at the beginning of stages of each kind."""
            if stage.number not in (2, 3, 4, 5):
                return
            harness.until(is_copied, 'the state has a copy', process=service.serve)
            harness.until(lambda: len(service.pids('up')) == 3, 'three aggregators are up')
            owners = set(service.job(name)['lanes'])
            for a in service.serving():
                if owners & {lane['lane'] for lane in a['lanes']}:
                    os.kill(a['pid'], signal.SIGKILL)
                    self.killed += 1
                    return
        self.killed = 0
        self.check_after(self.train(transport, service, between))
        self.assertEqual(self.killed, 4)

    def test_killed_owners_change_no_bit_over_shm(self):
        self.kill_owners('shm', 'replica')

    def test_killed_owners_change_no_bit_over_tcp(self):
        self.kill_owners('tcp', 'replica')


# ---- refusals ----

class Refusals(Case):
    def test_an_idle_rank_neither_pushes_nor_declares(self):
        jobs = self.join(2)
        for job in jobs:
            job.declare('wide', 4)

        def work(job):
            for stage in job.stages([{'name': 'narrow', 'workers': 1}], **LIMITS):
                values = numpy.ones(4, numpy.float32)
                if stage.place is None:
                    with self.assertRaisesRegex(gradpool.GradpoolError, "tensor 'wide': rank 1 of "
                                                "job .* is idle in stage 'narrow'") as raised:
                        job.push_pull('wide', values)
                    self.assertEqual(raised.exception.errno, errno.EPERM)
                else:
                    job.push_pull('wide', values, operation='sum').wait(LONG_MS)
                    self.assertEqual(values.tolist(), [1] * 4)
                    with self.raises(gradpool.GradpoolError, "root 1 is idle in the present stage"):
                        job.broadcast('wide', values, root=1)
                    with self.raises(gradpool.GradpoolError, 'the number of blocks is not known'):
                        job.push_pull('wide', values, numpy.ones(8, numpy.float32), 'gather')
                with self.raises(gradpool.GradpoolError, "tensor 'late': some ranks of job",
                                 'before the first stage'):
                    job.declare('late', 4)
        together(jobs, work)

    def test_a_push_during_a_border_is_refused(self):
        jobs = self.join(2)
        for job in jobs:
            job.declare('wide', 4)

        def begin(job, timeout_ms=LONG_MS):
            """Returns the text of the error of gp_stage_next(); '': no error."""
            try:
                next(job.stages([{'name': 'a', 'workers': 2}], timeout_ms=timeout_ms))
            except gradpool.GradpoolError as error:
                return error.strerror
            return ''

        def begin_at_last(job):
            """Like begin(), after the end of the call of the other thread."""
            text = 'another thread is in a call'
            while 'another thread is in a call' in text:
                text = begin(job)
            return text
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            first = thread.submit(begin_at_last, jobs[0])
            harness.until(lambda: 'another thread is in a call on stages' in begin(jobs[0], 50),
                          'the thread is at the border')
            with self.raises(gradpool.GradpoolError, "tensor 'wide': another thread is in "
                             'gp_stage_next() or gp_stage_end()'):
                jobs[0].push_pull('wide', numpy.ones(4, numpy.float32))
            self.assertEqual(begin(jobs[1]), '')
            self.assertEqual(first.result(), '')

    def test_a_push_after_a_late_border_is_refused(self):
        """The coordinator may begin the stage after the time-out, with the requested rounds."""
        jobs = self.join(2)
        for job in jobs:
            job.declare('wide', 4)
        plan = [{'name': 'a', 'workers': 1}]
        stages = together(jobs, lambda job: next(job.stages(plan, **LIMITS)))
        together(stages, lambda stage: list(stage.steps(0, 1)))     # ends the stage
        with self.raises(gradpool.Timeout, 'rank 1 is not in gp_stage_next'):
            next(jobs[0].stages(plan, timeout_ms=100))
        with self.raises(gradpool.GradpoolError, "tensor 'wide': gp_stage_next() of rank 0 of "
                         'job', 'repeat the call, then push'):
            jobs[0].push_pull('wide', numpy.ones(4, numpy.float32))
        places = together(jobs, lambda job: [stage.place for stage in job.stages(plan, **LIMITS)])
        self.assertEqual(places, [[0], [None]])
        whole = [numpy.ones(4, numpy.float32) for _ in jobs]
        together(list(zip(jobs, whole)), lambda pair: pair[0].push_pull(
            'wide', pair[1], operation='sum').wait(LONG_MS))
        self.assertEqual([values[0] for values in whole], [2, 2])

    def test_a_snapshot_in_a_narrow_stage_is_refused(self):
        jobs, name = self.join(2), 'test_a_snapshot_in_a_narrow_stage_is_refused'
        trained = [job.declare('w', 4, rule='sgd') for job in jobs]
        values = [numpy.ones(4, numpy.float32) for _ in jobs]
        for request in [job.broadcast(*pair) for job, *pair in zip(jobs, trained, values)]:
            request.wait(LONG_MS)
        stages = together(jobs, lambda job: job.stages([{'name': 'narrow', 'workers': 1}],
                                                       **LIMITS))
        together(stages, next)
        with tempfile.TemporaryDirectory() as folder:
            command = 'snapshot', name, '--output', os.path.join(folder, 'state')
            refused = python_case.service.ask(*command)
            self.assertIn('some ranks of job', refused.stderr)
            self.assertIn('are idle in its present stage', refused.stderr)
            self.assertEqual(together(stages, lambda stage: next(stage, None)), [None] * 2)
            done = python_case.service.ask(*command)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_border_names_a_round_that_a_member_has_not_pushed(self):
        jobs = self.join(2)
        for job in jobs:
            job.declare('wide', 4)
        open_round = jobs[0].push_pull('wide', numpy.ones(4, numpy.float32))
        with self.raises(gradpool.Timeout, "tensor 'wide': round 1 of rank 0 has not ended",
                         'push the tensor on all members of the stage'):
            list(jobs[0].stages([{'name': 'a', 'workers': 2}], timeout_ms=300))
        jobs[1].push_pull('wide', numpy.ones(4, numpy.float32)).wait(LONG_MS)
        open_round.wait(LONG_MS)
        self.assertEqual(together(jobs, lambda job: [
            stage.place for stage in job.stages([{'name': 'a', 'workers': 2}],
                                                **LIMITS)]), [[0], [1]])


def rank_dies(rank, workers):
    """A rank dies when a stage begins. Returns the error of another rank."""
    job = gradpool.connect().join(os.environ['JOB_NAME'], rank, workers)
    trainer = Trainer(job)

    def between(stage):
        if stage.number == 3 and rank == int(os.environ['DIES']):
            os.kill(os.getpid(), signal.SIGKILL)
    try:
        trainer.train(between=between)
    except gradpool.PeerLost as error:
        return error.strerror
    return None


class Deaths(Case):
    def test_a_rank_that_dies_at_a_border_fails_the_job_on_every_rank(self):
        processes = ranks.start_ranks('rank_dies', WORKERS, JOB_NAME='dies', DIES='2')
        ended = [harness.finish(process, ranks.RANK_TIMEOUT_S) for process in processes]
        self.assertEqual(processes[2].returncode, -signal.SIGKILL)
        for rank in {0, 1, 3}:
            self.assertIn('rank 2', ended[rank][0], ended[rank][1])


if __name__ == '__main__':
    ranks.main(globals())
