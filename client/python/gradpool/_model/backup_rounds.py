"""Rounds of a model that is attached to a job with backup workers. Each round closes without its
slowest ranks, whose gradients are dropped. If lanes update the parameters, a slow rank continues
with the parameters of the newest round. If the script updates the parameters, the rank first
applies the means of all missed rounds. So at the same time ranks are in different rounds, and at
different batches of their loaders.

The loop over batches() ends after the same round on every rank. The loop calls the script's
function `step` once for each round of the job, also on ranks whose gradient was dropped."""
import contextlib
import math
import threading
import time
import weakref

import torch.distributed

from .._native.backup import Backup, end_round, is_same_spec
from .._native.binding import number, U64_MAX
from ..errors import disagreement, mismatch, Timeout

# A wait that may be longer than this runs in another thread, so that the calling thread can handle
# a Ctrl-C.
_BRIEF_MS = 100
# Maximum number of executions of a loop's body without a gradient. Beyond this number an error is
# raised, because the loop would never end.
_IDLE_MOST = 1000


def backup_of(backup):
    """Returns the Backup of attach(backup=), or None."""
    if backup is None:
        return None
    if isinstance(backup, int) and not isinstance(backup, bool):
        backup = f'static:{backup}'
    if not isinstance(backup, Backup):
        backup = Backup(backup)
    return backup


def check_options(backup, optimizer, compression, step):
    """Raises Mismatch for arguments of attach() that do not fit `backup`, a Backup or None."""
    if step is not None and not callable(step):
        raise mismatch(f'attach(step={step!r}): expected a function without arguments, such as '
                       'scheduler.step')
    if backup is None and step is not None:
        raise mismatch('attach(step=) without backup=: the script writes its own loop, and calls '
                       'the function there. Leave step out, or give backup')
    if backup is not None and compression is not None:
        raise mismatch('attach(backup=) with compression: a rank cannot send the rest of a '
                       'dropped gradient. Leave compression out, or backup')
    if backup is not None and optimizer is None and step is None:
        raise mismatch('attach(backup=) without optimizer= and step=: neither lanes nor the script '
                       'would step. Give the optimizer as attach(optimizer=), or a function that '
                       'steps as attach(step=)')
    if backup is not None and optimizer is None and backup.rule == 'dbw':
        raise mismatch("attach(backup='dbw') without optimizer=: the rule needs the learning rate "
                       'of each step, which only lanes that step have. Give optimizer=, or another '
                       "rule such as 'auto'")
    if backup is not None and optimizer is not None and backup.lag is not None:
        raise mismatch(f'attach(backup=) with lag={backup.lag!r} and optimizer=: lanes step, so a '
                       'rank may be behind by any number of rounds. Leave lag out, or give a '
                       'function that steps as attach(step=) instead of the optimizer')


def check_model(model):
    """Raises Mismatch if ranks would wait for each other outside of rounds."""
    ignored = set(getattr(model, 'parameters_to_ignore', ()))
    buffers = [name for name, _ in model.module.named_buffers() if name not in ignored]
    if model.broadcast_buffers and buffers:
        raise mismatch(f"attach(backup=): rank 0 sends '{buffers[0]}' in each forward(), but ranks "
                       'are in different rounds. Make the DistributedDataParallel with '
                       'broadcast_buffers=False')
    for name, part in model.module.named_modules():
        if type(part).__name__ == 'SyncBatchNorm':
            raise mismatch(f"attach(backup=): '{name}' is a SyncBatchNorm, whose forward() needs "
                           'all ranks. Use BatchNorm, and broadcast_buffers=False')
    for option in 'find_unused_parameters', 'static_graph':
        if getattr(model, option, False):
            raise mismatch(f'attach(backup=) of a model with {option}=True, where backward() '
                           'needs all ranks. Make the DistributedDataParallel without it')


def check_places(parameters):
    """Raises Mismatch if a parameter is on a GPU. The round of a rank ends at the end of
    backward(), and copies to the host may then still be in progress."""
    for name, one in parameters.items():
        if not one.is_cpu:
            raise mismatch(f"attach(backup=): parameter '{name}' is on {one.device}, and the end "
                           'of a round does not await the copies of a GPU yet. Train on the CPU, '
                           'or leave backup out')


def check_job(job, backup):
    """Raises Mismatch if the Job of the script does not fit `backup`, a Backup."""
    if job.backup is None:
        raise mismatch(f'attach(backup=): {job} was joined without backup workers. Join it with '
                       'join(backup=..., durability="none"), or give the name of the job alone')
    joined = backup_of(job.backup)
    if not is_same_spec(joined, backup):
        raise mismatch(f'attach(backup={backup!r}): {job} was joined with {joined!r}. Leave '
                       'backup out of attach()')
    if job.tensors():
        raise mismatch(f"attach(): {job} has backup workers and the tensor "
                       f"'{job.tensors()[0].name}' already, and a round ends for all tensors at "
                       'once. Join another job for this model')


class BackupRounds:
    """Rounds of one attached model. Times are in rounds of the job.

    number   newest round whose parameters this rank has
    missed   closed rounds without a gradient of this rank
    dropped  gradients of this rank that were dropped
    left     bodies that this rank has left, because their round was closed
    goes_on  whether the round of the last gradient is open, and another gradient is wanted
    kept     requests of that gradient, which end with the round
    works    Works of the model; None: bodies cannot be left"""
    _needed = 'the output of the DistributedDataParallel model'     # for backward()

    def __init__(self, job, group, way, limit, backup, step, works=None):
        self._job, self._group, self._way, self._limit = job, group, way, limit
        self._step, self._again, self._batches = step, backup.again, _Batches()
        self.number = self.missed = self.dropped = self.left = 0
        self.goes_on, self.kept, self.works = False, [], works
        if works is not None:
            works.rounds = weakref.proxy(self)
        self._given = []        # batches of this rank's gradients of the open round
        # number of gradients of this rank in all rounds, and in the open round; number of its
        # gradients in the mean of the last round
        self._gradients = self._open = self._own = 0
        self._planned = 0       # the round after which the last loop ends, the same on every rank
        # round of the last step(); number of executed loop bodies since the last round
        self._stepped = self._idle = 0
        self._is_brief = False      # whether the last wait was short
        self.loss = math.nan        # loss of the gradient that is being computed; NaN: unknown

    # ---- the end of a round, in backward() ----

    def end(self, let_through):
        """Ends the round of this rank after its last gradient: returns when the parameters of the
        newest round can land. Calls let_through() while it waits."""
        began_s, end = time.monotonic(), None
        loss, self.loss = self.loss, math.nan
        if self._is_brief:
            with contextlib.suppress(Timeout), self._job.client._using():
                end = end_round(self._job._live(), loss, min(_BRIEF_MS, self._limit.ms))
        if end is None:
            end = self._end_in_thread(loss, let_through)
        self._is_brief = time.monotonic() - began_s < _BRIEF_MS / 1e3
        self._count(end)

    @property
    def gradients(self):
        """Returns the number of gradients that this rank has announced."""
        return self._gradients

    def _count(self, end):
        self._gradients += 1
        self._open += 1
        self._count_end(end)

    def _count_end(self, end):
        self.goes_on, self._idle = end.goes_on, 0
        if end.goes_on:
            return
        self.number, self._own = end.number, end.own
        self.missed += end.missed
        self.dropped += self._open - end.own
        self._open = 0

    def _end_in_thread(self, loss, let_through):
        found = []

        def run():
            try:
                found.append(self._job.end_round(loss, self._limit.ms))
            except Exception as error:
                found.append(error)
        thread = threading.Thread(target=run, name='gradpool-round', daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(_BRIEF_MS / 1e3)
            let_through()
        if isinstance(found[0], Exception):
            raise found[0]
        return found[0]

    # ---- the script's loop ----

    def batches(self, loader, rounds):
        return self._loop(loader, number(rounds, 'rounds', U64_MAX))

    def _loop(self, loader, rounds):
        # not self.number + rounds, because ranks begin the loop in different rounds
        self._planned = last = self._planned + rounds
        self._catch_up(last)
        self._way.note_settings()
        while self.number < last:
            batch, before = self._batches.next(loader), self._gradients
            self._begin_body()
            try:
                yield batch
            finally:
                self._end_body()
                gradients = self._note_batch(batch, before)
            self._count_body()
            self._way.check_settings()
            if self.works is not None:
                self._end_work(batch, gradients == before)
            self._catch_up(last)    # may end the round of a body without step()
            self._note_batch(batch, gradients)

    def _begin_body(self):
        self._way.begin_body()
        if self.works is not None:
            self.works.begin_body()

    def _end_body(self):
        if self.works is not None:
            self.works.end_body()
        self._way.end_body()

    def _end_work(self, batch, has_no_gradient):
        """Ends the round of a body that this rank has left, unless the script has computed a
        gradient after the with statement."""
        self.works.check_used()
        if not self.works.was_left or not has_no_gradient:
            return
        self._way.check_places()
        self.left += 1
        self.loss = math.nan    # of the body that was left, and not of the next gradient
        try:
            self._count_end(self._job.skip_round(self._limit.ms))
            if self.goes_on:    # the lane that closed the round was lost before other ranks knew it
                self._batches.put_back(batch)
                return
            self._given.append(batch)
            for request in self.kept:
                request.wait(self._limit.ms)
        except Timeout as error:
            raise self._limit.told(error) from error
        self.kept = []
        self._way.go_on(False)
        self._way.take_over()
        self._put_back_dropped()

    def _note_batch(self, batch, gradients):
        """Stores the batch of a body if a gradient of this rank was announced since the time when
        the rank had `gradients` gradients. Returns the present number."""
        if self._gradients > gradients:
            self._given.append(batch)
            self._put_back_dropped()
        return self._gradients

    def _put_back_dropped(self):
        """After the end of a round: makes batches() yield the batches of dropped gradients again.
        If no gradient of this rank counted, its first batch is lost, unless Backup(again=True)."""
        if self.goes_on:
            return
        for i in reversed(range(self._own, len(self._given))):
            if i > 0 or self._again:
                self._batches.put_back(self._given[i])
        self._given = []

    def _count_body(self):
        self._idle += 1
        if self._idle > _IDLE_MOST:
            raise mismatch(f'{self._job}: {_IDLE_MOST} bodies of a loop over batches() have sent '
                           'no gradient, so the loop cannot end. Call backward() with '
                           f'{self._needed} in each body')

    def catch_up(self):
        """Completes the step of a body, and steps for all missed rounds of the loop."""
        self._catch_up(self._planned)

    def _catch_up(self, last):
        """Completes a backward(). Calls the optimizer's step(), unless the script has called
        step(). Calls the script's function `step` once for each round. Fetches missed means up to
        round `last`."""
        self._way.end_step()
        while self._stepped < self.number or self._takes_next(last):
            self._stepped += 1
            if self._step is not None:
                self._step()
            self._way.note_settings()

    def _takes_next(self, last):
        """Fetches the mean of the next missed round, if the script updates the parameters. Returns
        False if no round up to `last` is missing. Later rounds belong to a later loop, which other
        ranks may have begun."""
        try:
            may_be_next = self.number < last and not self.goes_on
            is_next = may_be_next and self._way.take_next(self._limit.ms)
        except Timeout as error:
            raise self._limit.told(error) from error
        self.number += is_next
        self.missed += is_next
        return is_next

    def settle(self):
        """Returns when all ranks have called this method, and have the parameters of the same
        round."""
        self._catch_up(self.number)
        try:
            self._job.barrier(self._limit.ms)
        except Timeout as error:
            raise self._limit.told(error) from error
        texts = self._texts_of_all(f'round {self.number} with parameters {self._way.digest()}')
        if len(set(texts)) > 1:
            raise mismatch(f'{self._job}, settle(): {disagreement(texts, range(len(texts)))}. End '
                           'each loop over batches() by its number of rounds, and write no '
                           'parameters')
        self._planned = self.number     # all ranks may have left a loop after this round

    def _texts_of_all(self, text):
        texts = [None] * torch.distributed.get_world_size(self._group)
        torch.distributed.all_gather_object(texts, text, self._group)
        return texts


class _Batches:
    """Batches of a loader, pass after pass. A second loop over the same loader continues where the
    first loop ended. A loop over another loader drops the batches of put_back()."""

    def __init__(self):
        self._loader, self._left, self._kept = None, iter(()), []
        self._passes = {}       # id of a living sampler -> number of its passes

    def next(self, loader):
        if loader is not self._loader:
            self._kept.clear()
            self._begin_pass(loader)
        if self._kept:
            return self._kept.pop()
        for batch in self._left:
            return batch
        self._begin_pass(loader)
        for batch in self._left:
            return batch
        raise mismatch('batches(): the loader has no batch in a new pass. Give batches() a '
                       'DataLoader or a list, which can be read again, and has a batch on each '
                       'rank')

    def put_back(self, batch):
        """Makes next() return this batch."""
        self._kept.append(batch)

    def _begin_pass(self, loader):
        samplers = getattr(loader, 'sampler', None), getattr(loader, 'batch_sampler', None)
        for key, sampler in {id(one): one for one in samplers}.items():
            if hasattr(sampler, 'set_epoch'):
                sampler.set_epoch(self._count_pass(key, sampler))
        self._loader, self._left = loader, iter(loader)

    def _count_pass(self, key, sampler):
        """Returns the number of earlier passes of this sampler, which is 0 on every rank for a new
        sampler. No WeakKeyDictionary is used, because a sampler may have no hash."""
        if key not in self._passes:
            weakref.finalize(sampler, self._passes.pop, key).atexit = False
            self._passes[key] = 0
        self._passes[key] += 1
        return self._passes[key] - 1
