"""Run: the loop of a training whose workers join and leave.

The deal (deal.py) names the samples of this worker in each step. Gradients (gradients.py) averages
.grad at the end of backward(). A late worker takes part in one step with weight 0. Then it gets the
state of another worker (state.py). So all workers have the same model after each step."""
import collections
import functools
import io
import itertools
import os
import sys
import threading

import torch

from .._native.failing import leaving_with
from ..client import default_timeout_ms, Job
from ..errors import GradpoolError, mismatch, Timeout
from ..explore import worker as trial
from . import control, deal as deals
from .gradients import batch_norm_of, check_averaged, Gradients, parameters_of
from .joining import join
from .loader import batches
from .reports import Report, Reports
from .resting import Resting
from .settings import settings_of
from .state import check_objects, exchange, Last, NAME, State, WORDS

_TIMEOUT_MS = 30 * 60 * 1000
_ENDINGS = {deals.TRAINED: 'trained', deals.LEAVES: 'left', deals.ENDED: 'late'}


class Step(collections.namedtuple('Step', ('number', 'epoch', 'batch', 'weight', 'indices'))):
    """One step: its number from 1, its epoch from 0, samples of all workers, samples of this worker
    (0: its gradient has no effect), and their indices in the data set."""

    def report(self, **values):
        """Reports values of this worker, means over `indices`, under names of Run(reports=). After
        the step the `reported` of the Run has the means over the samples of all workers that have
        reported. Called in the body of the step."""
        self.reports.add(self, values)


class Run:
    """A training of `epochs` epochs over `samples` samples, with `batch` samples in each step of
    all workers together. All arguments but `rank`, `model` and `optimizer` are the same on every
    worker.

      batch_per_worker  samples of each worker in a step, instead of `batch`
      model      a module with float32 parameters on the CPU; not a DistributedDataParallel
      optimizer  the optimizer of the script; the script calls its step()
      also       further objects with a state, such as schedulers: a list
      seed       of the order of the samples
      prefetch   steps that loader() may read ahead
      reports    names of the values that Step.report() gets: a list
      job        a Job with workers_max or on_worker_loss='continue', which the Run leaves at its
                 end; or a name; None: GRADPOOL_JOB
      workers_max, rank, workers, endpoint  as in Client.join() and connect(), without a Job;
                 None: from the runner (python3 -m gradpool.elastic)
      timeout_ms  deadline of a step and of the join; 0: GRADPOOL_TIMEOUT_MS, or 30 minutes,
                 because all workers wait while one validates

    In the first step all workers get the state of the lowest rank. After the loop `ending` is
    'trained', 'left' (the job has shrunk), 'rests' (a trial whose workers later start again) or
    'late' (the training ended before this worker got its state, so its model is not trained).
    Raises GradpoolError."""

    def __init__(self, model, optimizer, samples, batch=None, epochs=None, also=(), seed=0,
                 prefetch=0, job=None, workers_max=None, rank=None, workers=None, endpoint=None,
                 timeout_ms=0, batch_per_worker=None, reports=(), lanes=False, compression=None):
        _refuse(lanes, compression, batch, batch_per_worker)
        parameters = parameters_of(model)
        _refuse_single_samples(batch_norm_of(model), samples, batch_per_worker or batch)
        check_averaged(parameters, model, optimizer,
                       'give the optimizer only parameters of the model of Run')
        objects = {'model': model, 'optimizer': optimizer}
        objects.update((f'also[{i}]', one) for i, one in enumerate(also))
        check_objects(objects)
        self.samples, self.prefetch, self.ending, self.reported = samples, prefetch, None, None
        self._timeout_ms = timeout_ms or default_timeout_ms(_TIMEOUT_MS)
        self._reports, self._client = Reports(reports), None
        self._state = State(objects, settings_of(objects, model, self._reports.names))
        check = functools.partial(
            check_averaged, parameters, model, optimizer,
            'give the model all parameters, and set requires_grad, before Run()')
        self.job = job
        if not isinstance(job, Job):
            self._client, self.job = join(job or os.environ.get('GRADPOOL_JOB'), rank, workers,
                                          workers_max, endpoint, self._timeout_ms)
        try:
            self._begin(parameters, check, samples=samples, batch=batch or 0, epochs=epochs,
                        batch_per_worker=batch_per_worker or 0, seed=seed, prefetch=prefetch,
                        share_least=2 if batch_norm_of(model) else 0)
        except BaseException as error:
            with leaving_with(error):
                self.close()
            raise

    def _begin(self, parameters, check, **deal):
        declared = {name: (one.numel(), 'float32') for name, one in parameters.items()}
        declared.update({NAME: (WORDS, 'int64')}, **self._reports.declared())
        self._deal = deals.Deal(self.job, declared, **deal)
        self._gradients = Gradients(self.job, parameters,
                                    [self._deal.tensors[name] for name in parameters],
                                    self._timeout_ms, check)
        self._carrier, self._link = self._deal.tensors[NAME], control.link()
        self._link.attach(self.job)
        self._has_state, self._has_begun, self._has_shared = False, False, False
        self._resize_error = None
        self._resting = Resting(self.job, self._carrier, self._timeout_ms)
        self._resting.begin(self._deal)
        self._peeked, self._epoch, self._place = None, None, 0
        # last step, or the last step of the rank that gave the state
        self._callbacks, self._has_called, self._last = [], False, Last(None, None)
        self._carried = None    # epoch of the giver's last step; used until epochs() begins
        if self._resting.checkpoint is not None:
            kept = io.BytesIO(self._resting.checkpoint.state)
            self._last = self._state.load(kept, self.job, None)
            self._carried = self._last.epoch

    # ---- loops ----

    def __iter__(self):
        """Yields the steps of the present epoch in a loop over epochs(), otherwise all steps."""
        while (step := self._peek()) is not None and self._epoch in (None, step.epoch):
            self._peeked = None
            self._tell_workers()
            yield step

    def on_change(self, callback):
        """Registers a function: callback(workers) is called before the first step, and before each
        step with a different number of workers, at the same steps on all workers. The effect of the
        callback may depend on `workers` alone. The state for a late worker includes the effect of
        earlier calls."""
        if self._has_called:
            raise mismatch('on_change() of Run after its first step: call on_change() before the '
                           'loop, on every worker')
        self._callbacks.append(callback)
        return callback

    def _tell_workers(self):
        workers, self._has_called = self._deal.step.workers, True
        if workers != self._last.workers:
            self._last = self._last._replace(workers=workers)
            for callback in self._callbacks:
                callback(workers)

    def epochs(self):
        """Yields the number of each epoch; a late worker begins in the open epoch. The script loops
        over all steps of the epoch. If a late worker gets the state after the last step of an
        epoch, the worker first gets this epoch without steps: the giver's script had not finished
        its loop body when the state was copied."""
        if self._is_carried_past():
            self._epoch = self._carried
            yield self._carried
        self._carried = None
        while (step := self._peek()) is not None:
            self._epoch = step.epoch
            yield step.epoch
            if self._peeked is step:
                raise mismatch(f'epoch {step.epoch} of Run has had no step: loop over the '
                               'Run, or over its loader(), in each epoch')
            if self._peek() is not None and self._peeked.epoch == step.epoch:
                raise mismatch(f'epoch {step.epoch} of Run was left before its last step: other '
                               'workers train the whole epoch; do so here, too')
        self._epoch = None

    def _is_carried_past(self):
        step = self._peek()
        if self._carried is None:
            return False
        return self.ending == 'trained' if step is None else step.epoch > self._carried

    def loader(self, data, **options):
        """Yields the batch of each step, made of the samples of this worker: data[i] for the
        indices of the step. Options are those of DataLoader; num_workers * prefetch_factor (2) is
        at most the prefetch of the Run."""
        return batches(self, data, **options)

    def indices_of(self, number):
        """Returns the samples of this worker in the present step or one of the next `prefetch`. A
        worker without a share gets two samples, because many models refuse empty batches, and batch
        norm refuses one sample; its weight is 0."""
        return self._deal.share(number) or self.stand_in

    @property
    def stand_in(self):
        """The indices of a step in which this worker has no share."""
        return [0, 1 % self.samples]

    @property
    def is_first(self):
        """Returns True on one worker: the lowest worker with a share of the samples. The value
        stays after close(); False before the first share of this worker."""
        return (self._has_shared and self._place == 0
                and self.ending in (None, 'trained', 'closed'))

    def resize(self, workers):
        """Requests another number of workers, and returns at once: workers join and leave between
        later steps. An error is raised by the next step."""
        threading.Thread(target=self._resize, args=(workers,), daemon=True).start()

    def _resize(self, workers):
        try:
            self.job.resize(workers, self._timeout_ms)
        except Timeout:
            pass    # the request stays in force
        except GradpoolError as error:
            if self.ending is None:
                self._resize_error = error

    # ---- steps ----

    def _peek(self):
        """Returns the step that the script has not got yet; None: the loop is over."""
        if self._peeked is None and self.ending is None:
            try:
                self._peeked = self._next()
            except BaseException:
                self.close()
                raise
        return self._peeked

    def _next(self):
        self._check_last()
        while True:
            result, step = self._deal.begin(self._timeout_ms), self._deal.step
            self._place = step.place
            if result == deals.CARRIES:
                self._carry(step.giver)
            elif result == deals.RESTS:
                self._rest()
            elif result != deals.STEP:
                return self._end(result)
            elif step.flags & deals.ENTERS:
                self._enter(step.number)
            else:
                return self._open(step)

    def _check_last(self):
        """Checks the step that the script has ended."""
        gradients = self._gradients
        if self._resize_error is not None:
            raise self._resize_error
        if gradients.failure is not None:
            raise gradients.failure
        if gradients.is_open and not gradients.is_pushed:
            raise mismatch(f'step {self._deal.step.number} of Run has had no backward(), for '
                           'which the other workers wait: call backward() in each step')
        if gradients.is_open:
            self._end_reports(self._last.epoch)
        gradients.is_open = gradients.is_pushed = False

    def _end_reports(self, epoch=None):
        """Makes the round of the reports of the present step."""
        values = self._reports.exchange(self.job, self._timeout_ms)
        if values and epoch is not None:
            self.reported = Report(self._deal.step.number, epoch, values)
            if self.is_first:
                trial.write(self._deal.step.number, self._deal.step.workers, values)

    def _open(self, step):
        if step.number == self._resting.first:
            self._share_first()
            if step.place == 0:
                self._resting.take()
        if not self._has_begun:
            self._link.send(step=step.number)
        self._has_state = self._has_begun = self._gradients.is_open = True
        self._has_shared = self._has_shared or step.weight > 0
        self._last = self._last._replace(epoch=step.epoch)
        indices = torch.tensor(self.indices_of(step.number), dtype=torch.int64)
        opened = Step(step.number, step.epoch, step.batch, step.weight, indices)
        opened.reports = self._reports
        self._reports.begin(self._deal.tensors, opened)
        return opened

    def _enter(self, number):
        """Makes a step of a late worker, whose gradients have no effect."""
        if number == self._resting.first:
            self._share_first()
        self._reports.begin(self._deal.tensors, None)
        self._gradients.pass_on()
        self._end_reports()
        self._gradients.is_pushed = False

    def _share_first(self):
        """Copies the state of the lowest present rank to all workers."""
        # the loop ends at the latest when this worker is the giver
        for giver in itertools.count():
            kept = self._exchange(giver)
            if kept is not None:
                if giver != self.job.rank:
                    self._state.load(kept, self.job, giver)
                return

    def _rest(self):
        """Ends the job in place of a rest, if the study wishes so; otherwise the workers sleep in
        the next begin()."""
        if self._resting.decide(self._deal, lambda: self._state.save(self._last)):
            self._deal.end()

    def _carry(self, giver):
        kept = self._exchange(giver)
        if self._has_state:
            return
        if kept is None:
            self._deal.missed()
        else:
            self._last = self._state.load(kept, self.job, giver)
            self._carried, self._has_state = self._last.epoch, True

    def _exchange(self, giver):
        given = self._state.save(self._last) if giver == self.job.rank else None
        wants = given is None and not self._has_state
        return exchange(self.job, self._carrier, given, wants, self._timeout_ms)

    # ---- the end ----

    def _end(self, result):
        self.ending = 'rests' if self._resting.has_ended else _ENDINGS[result]
        if self.ending == 'trained':
            self._resting.take()
        if self.ending == 'late':
            print(f'gradpool: {self.job}: the training had ended before this worker got its state; '
                  'its model is not trained', file=sys.stderr, flush=True)
        self.close()

    def close(self):
        """Leaves the job, like the loop at its end. A script that leaves the loop early calls this
        method."""
        self.ending = self.ending or 'closed'
        if hasattr(self, '_link'):
            self._gradients.close()
            self._link.send(ending=self.ending)
        if self._client is not None:
            self._client.close()
        else:
            self.job.leave()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        with leaving_with(error):
            self.close()


def _refuse(lanes, compression, batch, batch_per_worker):
    if (batch is None) == (batch_per_worker is None):
        raise mismatch(f'Run() with batch={batch} and batch_per_worker={batch_per_worker}: give '
                       'one of them')
    if lanes:
        raise mismatch('Run() with lanes=True: a late worker gets the state of another worker, '
                       'and lanes keep theirs; leave lanes out; the script steps')
    if compression is not None:
        raise mismatch('Run() with compression: codes of gradients cannot be weighed by the '
                       'samples of a worker; leave compression out')


def _refuse_single_samples(batch_norm, samples, batch):
    if batch_norm and (samples == 1 or batch == 1):
        raise mismatch(f"Run() of a model with BatchNorm '{batch_norm}' has {samples} samples and "
                       f'batch {batch}, and one sample has no statistics; use batches of two or '
                       'more, or LayerNorm')
