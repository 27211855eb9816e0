"""The two jobs of the demo: starts their workers, waits for them, and returns their results."""
import dataclasses
import os
import sys

import numpy

from children import Failed

START_TIMEOUT_S = 90
TRAIN_TIMEOUT_S = 120
WARM_STEPS = 10     # slow steps without timing: DDP allocates memory and rebuilds its buckets


@dataclasses.dataclass(frozen=True)
class Job:
    """A job: its training, its number of workers, and the required accuracy."""
    name: str
    text: str
    workers: int
    steps: int
    accuracy: float


JOBS = (Job('digits', 'CNN, handwritten digits', 2, 400, 0.95),
        Job('cancer', 'MLP, breast cancer', 3, 2500, 0.93))


class Run:
    """The workers of one job, from start to end."""

    def __init__(self, job, phase, stage, steps=None, holds=()):
        """`stage`: environment of the demo (run.py). `holds`: fractions of the training at which
        workers wait for let_go(), so that no job ends before a disturbance."""
        self.job, self.phase, self.stage = job, phase, stage
        self._holds = [int(share * (steps or job.steps)) for share in holds]
        self.steps = steps or job.steps
        self._results = [stage.folder / f'{phase}-{job.name}-{rank}.npz'
                         for rank in range(job.workers)]
        self.workers = [self._start(rank) for rank in range(job.workers)]

    def _start(self, rank):
        job, stage = self.job, self.stage
        node = stage.network.node_of(job.name, rank)
        argv = [sys.executable, stage.here / 'worker.py', job.name, '--data', stage.data,
                '--store', stage.folder / f'{self.phase}-{job.name}.store',
                '--steps', self.steps, '--result', self._results[rank],
                *(word for step in self._holds for word in ('--hold', step))]
        return stage.children.start(f'{self.phase}-{job.name}-{rank}',
                                    stage.network.inside(node, map(str, argv)), {
            **stage.environment, **stage.network.environment(),
            **stage.service.environment(job.name), 'GRADPOOL_JOB': job.name,
            'RANK': str(rank), 'WORLD_SIZE': str(job.workers)})

    def progress(self):
        """Returns the last step that all workers have done. Before the first step, returns the
        state of the workers."""
        steps = [worker.last('step') for worker in self.workers]
        if all(steps):
            return f'{self.job.name} {min(s["step"] for s in steps)}/{self.steps}'
        return f'{self.job.name} starts'

    def reached(self, step):
        return all((last := worker.last('step')) and last['step'] >= step
                   for worker in self.workers)

    def let_go(self):
        """Starts the training of the workers, or continues it after a hold."""
        for worker in self.workers:
            worker.tell('go')

    def is_over(self):
        return all(worker.process.poll() is not None for worker in self.workers)

    def accuracy(self):
        return min(worker.last('done')['accuracy'] for worker in self.workers)

    def digests(self):
        return {worker.last('done')['digest'] for worker in self.workers}

    def ended_s(self):
        """Returns the end time of each step on rank 0. The ranks differ by at most one step."""
        return numpy.load(self._results[0])['ended_s']

    def start_reference(self):
        """Starts the training in one process, whose bits the result must equal."""
        stage = self.stage
        return stage.children.start(f'reference-{self.job.name}', [
            sys.executable, stage.here / 'reference.py', self.job.name, '--data', stage.data,
            '--steps', self.steps, *self._results], stage.environment)


def wait_ready(runs):
    """Waits until all workers have joined. They train after let_go()."""
    workers = [worker for run in runs for worker in run.workers]
    runs[0].stage.children.wait('the workers join', lambda: all(w.last('ready') for w in workers),
                                workers, START_TIMEOUT_S)


def wait_over(runs):
    """Waits until all workers have finished. Raises Failed if a worker has ended in another way."""
    workers = [worker for run in runs for worker in run.workers]
    runs[0].stage.children.wait('the training ends', lambda: all(w.last('done') for w in workers),
                                workers, TRAIN_TIMEOUT_S)
    runs[0].stage.children.wait_ended(workers, START_TIMEOUT_S)


def steps_per_s(runs):
    """Returns {job: steps/s} over the time in which all these runs trained."""
    times = {run.job.name: run.ended_s()[WARM_STEPS:] for run in runs}
    begin_s = max(t[0] for t in times.values())
    end_s = min(t[-1] for t in times.values())
    if end_s <= begin_s:
        raise Failed('the jobs did not train at the same time')
    return {name: float(((t > begin_s) & (t <= end_s)).sum() / (end_s - begin_s))
            for name, t in times.items()}


def longest_pause_s(run):
    """Returns the longest time between two steps."""
    return float(numpy.diff(run.ended_s()).max())


def environment(library, package, transport):
    """Returns the environment of all workers and references: one thread for each process, and the
    paths of gradpool."""
    return {'OMP_NUM_THREADS': '1', 'MKL_NUM_THREADS': '1', 'OPENBLAS_NUM_THREADS': '1',
            'PYTHONDONTWRITEBYTECODE': '1', 'GRADPOOL_LIBRARY': str(library),
            'GRADPOOL_TRANSPORT': transport,
            'PYTHONPATH': os.pathsep.join(filter(None, [str(package),
                                                        os.environ.get('PYTHONPATH')]))}
