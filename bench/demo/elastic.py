"""The elastic job of the demo: one worker joins while the job trains, and one leaves."""
import signal
import sys

import numpy

from children import Failed
from jobs import START_TIMEOUT_S, TRAIN_TIMEOUT_S

NAME, KIND = 'elastic', 'digits'
WORKERS, WORKERS_MAX = 2, 3
BATCH = 64
ACCURACY = 0.95
STEPS_BETWEEN = 100     # number of steps between two changes of the number of workers


class Elastic:
    """The runner of the job, and its workers."""

    def __init__(self, stage):
        """`stage`: environment of the demo (run.py)."""
        self._stage = stage
        self.folder = stage.folder / NAME
        self.folder.mkdir()
        self._runner = stage.children.start(NAME, map(str, [
            sys.executable, '-m', 'gradpool.elastic', '--job', NAME, '--workers', WORKERS,
            '--workers-max', WORKERS_MAX, stage.here / 'elastic_worker.py', KIND,
            '--data', stage.data, '--batch', BATCH, '--folder', self.folder]), {
                **stage.environment, **stage.service.environment(NAME)})

    def progress(self):
        """Returns the last step and the number of workers. Before the first step, returns the state
        of the workers."""
        step, workers = self._runner.last('step'), self._runner.last('workers')
        if step and workers:
            return f'{NAME}, {workers["workers"]} workers, step {step["step"]}'
        return f'{NAME} starts'

    def workers(self):
        """Returns the successive numbers of workers, as reported by rank 0."""
        return [e['workers'] for e in self._runner.events
                if e['event'] == 'workers' and e['rank'] == 0]

    def endings(self):
        """Returns {rank: how the training of this rank has ended}."""
        return {e['rank']: e['ending'] for e in self._runner.events if e['event'] == 'done'}

    def accuracy(self):
        """Returns the smallest accuracy of the workers that trained to the end, and the required
        accuracy."""
        return min(e['accuracy'] for e in self._runner.events
                   if e['event'] == 'done' and e['ending'] != 'left'), ACCURACY

    def longest_step_s(self):
        """Returns the longest and the median time of a step on rank 0."""
        times_s = numpy.diff(numpy.load(self.folder / 'rank-0.npz')['ended_s'])
        return float(times_s.max()), float(numpy.median(times_s))

    def _wait(self, what, is_done):
        self._stage.children.wait(what, is_done, [self._runner], START_TIMEOUT_S)

    def _wait_steps(self, rank):
        """Waits until a worker has done STEPS_BETWEEN further steps."""
        def step():
            return max((e['step'] for e in self._runner.events
                        if e['event'] == 'step' and e['rank'] == rank), default=None)
        self._wait(f'the first step of rank {rank}', lambda: step() is not None)
        begun = step()
        self._wait(f'steps of rank {rank}', lambda: step() >= begun + STEPS_BETWEEN)

    def train(self):
        """Trains with 2, 3 and 2 workers, to the end."""
        process = self._runner.process
        self._wait_steps(rank=0)
        process.send_signal(signal.SIGUSR1)
        self._wait_steps(rank=WORKERS)
        process.send_signal(signal.SIGUSR2)
        self._wait('the worker leaves', lambda: WORKERS in self.endings())
        self._wait_steps(rank=0)
        (self.folder / 'stop').touch()
        self._stage.children.wait_ended([self._runner], START_TIMEOUT_S)
        if process.returncode != 0:
            raise Failed(f'{NAME} ended with {process.returncode}:{self._runner.tail()}')

    def compare(self):
        """Returns the counts that the reference prints after its training in one process."""
        stage = self._stage
        reference = stage.children.start(f'reference-{NAME}', [
            sys.executable, stage.here / 'elastic_reference.py', KIND, '--data', stage.data,
            *sorted(self.folder.glob('rank-*.npz'))], stage.environment)
        stage.children.wait('the reference', lambda: reference.last('compared'), [reference],
                            TRAIN_TIMEOUT_S)
        return reference.last('compared')
