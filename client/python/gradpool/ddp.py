"""The first door (interface): the service averages the gradients of a DistributedDataParallel
model.

    model = torch.nn.parallel.DistributedDataParallel(net)
    gradpool.ddp.attach(model)

One gradient, from loss.backward() to optimizer.step():

    DDP    calls the hook when all gradients of a bucket are ready
    hook   starts one push-pull of a group: each parameter's slice of the bucket is the next round
           of the tensor of that name; returns a Future
    lane   writes the mean over the slices, the same bits on every worker
    thread waits in the library, then completes the Future; backward() returns after the last one

Each parameter has a tensor, and a bucket is only a group of tensors (Y1). So the new buckets that
DDP builds after iteration 1 need no new tensors, except for small gradients, which are sent
together (_model.bucket_packs). DDP uses its own process group at set-up, for find_unused_parameters
and for broadcast_buffers, but never for gradients. With an optimizer the lanes do its steps, and
write new parameters instead of means (_steps.stepping)."""
import atexit
import errno
import functools
import itertools
import math
import os
import sys
import threading
import time
import weakref

import torch
import torch.distributed

from ._model import uneven
from ._model.attached import Place
from ._model.backup_rounds import (backup_of, BackupRounds, check_job, check_model,
                                   check_options, check_places)
from ._model.backup_work import Work, Works
from ._model.bucket_packs import Packs
from ._model.buckets import bucket_of, is_stand_in, parts_of
from ._model.groups import job_name_of, Limit
from ._model.residuals import Residuals
from ._native.failing import leaving_with
from ._process import interrupts, rendezvous
from ._process.completion import complete
from ._process.membership import join, leave_dropped
from ._process.promise import Promise
from ._steps.backup_means import BackupMeans
from ._steps.backup_stepping import BackupStepping
from ._steps.stepping import Stepping
from ._tensors.full import elements_of, Full, names_of_sparse
from .client import Job
from .errors import GradpoolError, mismatch, Timeout

# Interval of checks for a postponed Ctrl-C during a wait for other ranks.
_LOOK_MS = 100
# Time for which the end of a script waits for open pushes. Such pushes exist only after an
# abandoned step.
_STOP_S = 2.0

rendezvous.prepare()
uneven.offer()
interrupts.offer()
_QUEUE = torch.autograd.Variable._execution_engine.queue_callback
_models = weakref.WeakSet()         # models that were attached at least once
_attachments = weakref.WeakSet()    # attachments of this process and of its parents


@atexit.register
def _close_all():
    """Closes all attachments. Registered at import, so that it runs before the threads end."""
    for attachment in list(_attachments):
        attachment.close()


def attach(model, job=None, endpoint=None, timeout_ms=0, wire=None, prefix=None,
           optimizer=None, compression=None, backup=None, step=None):
    """Lets the service average the gradients of `model`; returns an Attachment.

      model       torch.nn.parallel.DistributedDataParallel with float32 parameters, before its
                  first backward(), without another communication hook
      job         name of the job, the same on every worker (None: GRADPOOL_JOB), or a Job that this
                  process has joined. Models of one name and endpoint share one membership. If the
                  model's process group has only some of the ranks, their list is added to the name
      endpoint    "gradpool://host:7077"; None: GRADPOOL_ENDPOINT
      timeout_ms  deadline of a bucket; 0: GRADPOOL_TIMEOUT_MS, or the time-out of
                  init_process_group() or new_group() (half an hour by default)
      wire        dtype of gradients and mean on the wire: None (float32), "float16" or "bfloat16"
      prefix      prefix of the parameters' names in the job. None: "" for the first model attached
                  to the job, "model2/" for the second and so on: attach them in the same order on
                  every worker
      optimizer   torch.optim.SGD, Adam or AdamW of the model's parameters: the lanes do its steps
                  within backward(), with rank 0's settings of that moment; all workers begin with
                  rank 0's parameters and moments. None: the service averages gradients
      compression  a codec of gradpool.codecs, for gradients with fewer bytes on the wire; not with
                  an optimizer
      backup      "static:3": each round closes at its third gradient, and later gradients are
                  dropped. "auto": the service decides when a round closes. Or a gradpool.Backup.
                  Loop over batches(); the job has this model alone. None: rounds wait for all
      step        with backup, a function such as scheduler.step, which batches() calls once for
                  each round on every rank. Without optimizer= it applies the means in .grad

    Rank and number of workers are those of the model's process group. Raises GradpoolError."""
    if not isinstance(model, torch.nn.parallel.DistributedDataParallel):
        raise mismatch(f'attach() takes a DistributedDataParallel model, not a '
                       f'{type(model).__name__}')
    if model in _models:
        raise mismatch('attach() a second time to one DistributedDataParallel, which can have '
                       'one optimizer: give that one all parameters, in groups where settings '
                       'differ. For another optimizer, or after close(), make another '
                       'DistributedDataParallel of the module and attach() that')
    shapes = _parameters_of(model)
    backup = backup_of(job.backup if backup is None and isinstance(job, Job) else backup)
    check_options(backup, optimizer, compression, step)
    way = _way_of(model, shapes, optimizer, compression, backup)
    membership = None
    if not isinstance(job, Job):
        membership = _membership_of(_who(model.process_group, job, endpoint), backup)
        job = membership.job
    elif backup is not None:
        check_job(job, backup)
    place = None
    try:
        place = Place(job, membership, prefix)
        limit = Limit(timeout_ms, model.process_group)
        rounds = backup and BackupRounds(job, model.process_group, way, limit, backup, step,
                                         Works(job, model, shapes, backup.stragglers))
        return Attachment(model, place, job, shapes, limit, wire, way, rounds)
    except BaseException:
        if place is not None:
            place.close()
        elif membership is not None:
            membership.release()
        raise


def _membership_of(who, backup):
    leave_dropped(*who)
    return join(*who, backup)


def _who(group, name, endpoint):
    """Returns the first arguments of join() for a process group, which has its own job (Y73)."""
    return (job_name_of(name, group), endpoint, torch.distributed.get_rank(group),
            torch.distributed.get_world_size(group))


def _parameters_of(model):
    """Returns {name: parameter} for the parameters that DDP averages; all must be float32."""
    ignored = set(getattr(model, 'parameters_to_ignore', ()))
    found = {name: parameter for name, parameter in model.module.named_parameters()
             if parameter.requires_grad and name not in ignored}
    for name, parameter in found.items():
        if parameter.dtype is not torch.float32 or parameter.device.type not in ('cpu', 'cuda'):
            raise mismatch(f"parameter '{name}' is {parameter.dtype} on {parameter.device}, "
                           'expected torch.float32 on cpu or cuda: call float() on the model, or '
                           "init_process_group('gradpool'), which takes every dtype")
    return found


def _frozen_of(model):
    """Returns {name: parameter} of parameters without gradients in DDP, except those that the
    script excludes."""
    ignored = set(getattr(model, 'parameters_to_ignore', ()))
    return {name: parameter for name, parameter in model.module.named_parameters()
            if not parameter.requires_grad and name not in ignored}


def _way_of(model, parameters, optimizer, compression, backup):
    """Returns the object that replaces the plain means of gradients, or None."""
    if optimizer is not None and compression is not None:
        raise mismatch('attach() with an optimizer and compression: lanes cannot step with '
                       'compressed gradients; leave one of the two out')
    if backup is not None:
        check_model(model)
        check_places(parameters)
        if optimizer is None:
            return BackupMeans(model.module, parameters)
        return BackupStepping(optimizer, model.module, parameters, _frozen_of(model),
                              model.process_group)
    if optimizer is not None:
        return Stepping(optimizer, model.module, parameters, _frozen_of(model))
    if compression is None:
        return None
    for name in names_of_sparse(model.module):
        raise mismatch(f"parameter '{name}' has sparse gradients, codecs take dense ones: set "
                       'sparse=False, or attach without compression')
    from ._model.compressing import Compressing   # imports numpy, which is optional
    return Compressing(compression, parameters)


class Attachment:
    """A model whose gradients the service averages; made by attach(). close() or the end of the
    process leaves the job, unless another attached model uses it. If the script drops the model,
    the tensors are undeclared, and the job continues (Y72).

      residuals  gradients that compression has not sent yet: state_dict() and load_state_dict()"""

    def __init__(self, model, place, job, parameters, limit, wire, way=None, rounds=None):
        self.job = job
        self._place = place
        self._way = way     # Stepping or Compressing; None: plain means
        self._rounds = rounds   # BackupRounds; None: every round waits for all ranks
        self._limit = limit
        self._open = {}                 # open pushes, the oldest first
        self._idle = threading.Condition()
        self._is_closed = False
        self._process = os.getpid()
        self.failure = None
        self._buckets = {}  # index -> (layout of the bucket, object that starts its means)
        self._are_views, self._lends = model.gradient_as_bucket_view, wire is None
        self.residuals = Residuals(getattr(way, 'feedback', None),
                                   {name: one.numel() for name, one in parameters.items()},
                                   job.rank)
        known = set(job.tensors())
        if way is None:
            self._tensors = self._declare(parameters, names_of_sparse(model.module), wire)
            self._packs = Packs(job, place, wire) if place.is_of_group else None
        else:
            way.declare(job, place.beginning, wire)
        place.tensors = [tensor for tensor in job.tensors() if tensor not in known]
        _register(model, self)
        weakref.finalize(model, _let_go, weakref.ref(self)).atexit = False
        if isinstance(way, Stepping):
            way.replace_step(self.check)
            way.keep(place)
        else:
            weakref.finalize(model, place.drop).atexit = False
        self._before_forward = model.register_forward_pre_hook(_Check(self, _frozen_of(model)))
        uneven.watch(model, isinstance(way, Stepping), rounds is not None)
        _attachments.add(self)

    def _declare(self, parameters, sparse, wire):
        """Returns {id of a parameter: its tensor}. These ids stay valid while the model exists."""
        made = self.job.declare_all({
            self._place.beginning + name: (elements_of if name in sparse else torch.numel)(one)
            for name, one in parameters.items()}, wire=wire)
        return {id(parameter): tensor for parameter, tensor in zip(parameters.values(), made)}

    def check(self):
        """Raises the first failure again, if there was one. Each forward() and each bucket calls
        this, because backward() itself can only raise a RuntimeError with the text."""
        if self.failure is not None:
            raise self.failure

    def restore(self, path):
        """Restores a snapshot (`job.snapshot(path)`): the lanes get the saved state, and the model
        gets the saved parameters. A snapshot contains all models of the job. So every rank calls
        this method for each model with an optimizer, before the training."""
        if not isinstance(self._way, Stepping):
            raise mismatch('restore() of a model whose script makes the steps: lanes have no state '
                           'of this model; torch.save() its parameters and its optimizer')
        self._way.restore(self.job, path)

    def batches(self, loader, rounds):
        """With backup workers: yields batches of the loader until the job has made `rounds` further
        rounds. The loop ends after the same round on every rank. When the loader ends, batches()
        calls set_epoch() of its sampler, and begins the loader again. Each body calls backward()
        once, and batches() calls the attached optimizer's step() and the function step of
        attach()."""
        return self._rounds_of('batches()').batches(loader, rounds)

    def work(self):
        """With backup workers: a rank leaves "with attachment.work() as work:" before its end if
        the round of its gradient has closed, and if the Backup has stragglers="interrupt". Put
        zero_grad(), forward() and backward() of a body into one such statement. work.is_left:
        whether this rank has left it."""
        return Work(self._rounds_of('work()').works)

    def tell_loss(self, loss):
        """With backup workers: sets the loss of this rank's batch, before its backward(). The rules
        "dbw" and "adasync" need losses; without losses "adasync" keeps its first number of
        gradients."""
        self._rounds_of('tell_loss()').loss = float(loss)

    def settle(self):
        """With backup workers: returns when all ranks have called this method and have the
        parameters of the same round. Call settle() after a loop over batches(), and before
        validation. Mismatch: ranks have different rounds or parameters; the text names the
        ranks."""
        self.check()
        self._rounds_of('settle()').settle()

    @property
    def round(self):
        """With backup workers, the newest round whose parameters this rank has."""
        return self._rounds_of('round').number

    @property
    def missed(self):
        """With backup workers, the number of rounds without a gradient of this rank."""
        return self._rounds_of('missed').missed

    @property
    def dropped(self):
        """With backup workers, the number of this rank's gradients that were dropped."""
        return self._rounds_of('dropped').dropped

    @property
    def left(self):
        """With backup workers, the number of bodies that this rank has left before their end."""
        return self._rounds_of('left').left

    def _rounds_of(self, call):
        if self._rounds is None:
            raise mismatch(f'{call} of a model attached without backup workers: every round has '
                           'all ranks. Iterate over the loader, or attach(backup=...)')
        return self._rounds

    def close(self):
        """Leaves the job, if attach() joined it. No effect in a forked child. After an abandoned
        step, open rounds continue until the end of the process."""
        if os.getpid() != self._process or self._is_closed:
            return
        self._before_forward.remove()
        if self._rounds is not None:
            self._rounds.works.close()
        self._is_closed = True
        self._say_step_left_out()
        if self._is_idle(_STOP_S):
            self._place.close()

    def _say_step_left_out(self):
        """Warns if the last backward() had no step(). Only a further backward() would raise an
        error."""
        if (self.failure is None and isinstance(self._way, Stepping) and
                self._way.has_step_left_out()):
            self._say('step() of the attached optimizer was not called after the last backward(), '
                      'and lanes have made that step. If the script called step() of another '
                      'optimizer, the model has both steps. attach() the optimizer whose step() '
                      'the script calls')

    def _say(self, text):
        print(f"gradpool: job '{self.job.name}', rank {self.job.rank}: {text}", file=sys.stderr,
              flush=True)

    def _is_idle(self, limit_s):
        with self._idle:
            return self._idle.wait_for(lambda: not self._open, limit_s)

    def let_go(self):
        """Ends the attachment after the script has dropped the model."""
        self._way = self._rounds = None
        self._buckets = {}

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        with leaving_with(error):
            self.close()

    def __reduce__(self):
        return _Copy, ()

    def push(self, bucket):
        """Starts the mean over a torch.distributed.GradBucket, in place, or the optimizer's step.
        Returns the Future of the bucket."""
        self.check()
        if self._is_closed:
            raise GradpoolError(errno.EBADF, f"job '{self.job.name}': backward() of a model whose "
                                'attachment has been closed; make another '
                                'DistributedDataParallel of the module')
        try:
            way = self._way or self._means_of(bucket)
            request, land = way.start(self.job, bucket)
        except BaseException as error:
            self.fail(error)
            raise
        push = _Push(self, request, bucket.buffer(), land, self._limit, self._rounds is None)
        with self._idle:
            self._open[push] = None
        if bucket.is_last():
            self._see_through_at_end(push)
        complete(push)
        return push.future

    def _see_through_at_end(self, last):
        """Makes backward() wait in Python before DDP waits in C++, where no signal is handled."""
        try:
            _QUEUE(functools.partial(self._see_through, last))
        except RuntimeError:    # torch's Join pushes outside of backward()
            return
        last.is_seen_through = True

    @interrupts.put_off
    def _see_through(self, last):
        try:
            if self._end_round():
                return self._put_off()
            while not last.is_over():
                last.request.done(_LOOK_MS)
                interrupts.let_through()
            while not self._is_idle(_LOOK_MS / 1e3):
                interrupts.let_through()
        except BaseException as error:
            self.fail(error)
            raise

    def _end_round(self):
        """Ends the round in a job with backup workers. Returns whether another gradient is wanted
        first. After a failure all pushes end with this failure."""
        if self._rounds is None:
            return False
        try:
            self._rounds.end(interrupts.let_through)
        except GradpoolError as error:
            self.fail(self._limit.told(error) if isinstance(error, Timeout) else error)
            return False
        self._way.go_on(self._rounds.goes_on)
        if not self._rounds.goes_on:
            self._rounds.kept = []
        return self._rounds.goes_on

    def _put_off(self):
        """Ends the pushes of a gradient whose round is still open. Their requests are kept until
        the pushes of the next gradient use them."""
        with self._idle:
            pushes = list(self._open)
        self._rounds.kept = [push.put_off() for push in pushes]

    def _means_of(self, bucket):
        """Returns the object that starts the means of a bucket; each layout of DDP has one. The
        bucket's buffer is stored with the object, so that no other layout gets the same address."""
        known, means = self._buckets.get(bucket.index(), (None, None))
        if bucket.buffer().is_sparse:
            return Full(self._tensors[id(bucket.parameters()[0])])
        address = bucket.buffer().data_ptr()
        if known is None or known[0] != address:
            ids = tuple(map(id, bucket.parameters()))
            is_passing = self._are_views and is_stand_in(bucket)
            parts = parts_of(bucket, [self._tensors[one] for one in ids])
            if self._packs is not None:
                parts = self._packs.packed(bucket, parts)
            means = bucket_of(self.job, bucket, parts, self._are_views,
                              self._lends and not is_passing)
            if not is_passing:
                self._buckets[bucket.index()] = (address, ids), means
        return means

    def see_out(self, push):
        """Called when the Future of a push is complete."""
        with self._idle:
            self._open.pop(push, None)
            self._idle.notify_all()

    def end_before(self, failed):
        """Ends earlier pushes that are finished, and reports their failures first: a rank that has
        found a disagreement leaves the job, and later pushes of other ranks fail for this
        reason."""
        with self._idle:
            earlier = list(itertools.takewhile(lambda push: push is not failed, self._open))
        for push in earlier:
            push.is_over()

    def fail(self, error):
        """Stores the first failure and prints it once. backward() waits for all buckets before it
        raises the error (Y3)."""
        if self.failure is None:
            # the exception of a signal handler must not be raised again by a later forward()
            if not isinstance(error, Exception):
                error = GradpoolError(errno.EINTR, f'{type(error).__name__} in backward(), before '
                                      'all ranks had sent their gradients; end the script, or '
                                      'attach() a new DistributedDataParallel')
            self.failure = error
            self._say(error)


class _Copy:
    """The hook's state in a copy of a model: torch 2 copies the state. The copied model has no
    hook, so this object does nothing."""

    def push(self, _):
        raise mismatch('the model is a copy of an attached model: attach() the copy, too')


class _Push:
    """A bucket in progress. After the attachment's first failure a push ends at once with this
    failure; its memory stays lent until the job is left.

    land             called at the end of the round; returns the tensor for DDP, like `buffer`
    is_limited       whether the push has a deadline; with backup workers only the end of the
                     round has a deadline
    is_seen_through  whether the end of backward() waits for the push; False if backward() does
                     not reach its end"""

    def __init__(self, attachment, request, buffer, land, limit, is_limited):
        self._attachment, self.request, self._land = attachment, request, land
        self._limit = limit
        self._deadline_s = time.monotonic() + limit.ms / 1e3 if is_limited else math.inf
        self._buffer, self._promise = buffer, Promise([buffer])
        self.future = self._promise.future
        self.is_seen_through, self._is_over, self._lock = False, False, threading.Lock()

    def waits_for(self):
        return None if self.is_seen_through else self.request

    def is_over(self):
        with self._lock:
            if not self._is_over:
                self._try_to_end()
            return self._is_over

    def put_off(self):
        """Ends the push without a result. Returns its request, which is still open."""
        with self._lock:
            if not self._is_over:
                self._promise.keep(self._buffer)
                self._is_over = True
                self._attachment.see_out(self)
        return self.request

    def _try_to_end(self):
        try:
            self._attachment.check()
            if not self.request.done() and time.monotonic() < self._deadline_s:
                return
            self.request.wait(1)    # finished, or a Timeout that names late ranks
            self._promise.keep(self._land())
        except Exception as error:
            self._attachment.end_before(self)
            self._attachment.fail(
                self._limit.told(error) if isinstance(error, Timeout) else error)
            self._promise.break_by(self._attachment.failure)
            self.request.mute()
        self._is_over = True
        self._attachment.see_out(self)


class _Check:
    """Called before each forward() of an attached model. In a copy of the model it has no effect.

    frozen  {name: parameter} that DDP does not average"""

    def __init__(self, attachment=None, frozen=()):
        self._attachment = weakref.ref(attachment) if attachment else lambda: None
        self._frozen = frozen

    def __call__(self, *_):
        attachment = self._attachment()
        if attachment is not None:
            attachment.check()
            self._check_frozen()

    def _check_frozen(self):
        for name in self._frozen:
            if self._frozen[name].requires_grad:
                raise mismatch(f"parameter '{name}' was thawed after DistributedDataParallel(), "
                               'which averages no gradient of it: set requires_grad before, or '
                               'make another DistributedDataParallel of the module and attach() it')

    def __reduce__(self):
        return _Check, ()


def _let_go(attachment):
    """Called when the model is freed. `attachment` is a weak reference, because an attachment
    refers to the parameters."""
    attachment = attachment()
    if attachment is not None:
        attachment.let_go()


def _register(model, attachment):
    try:
        model.register_comm_hook(attachment, _average)
    except RuntimeError as error:
        raise mismatch(f'attach() of a model with a communication hook ({error}): leave the hook '
                       'out, or make another DistributedDataParallel of the module and '
                       'attach() it') from error
    _models.add(model)


@interrupts.put_off
def _average(attachment, bucket):
    """The communication hook. DDP requires this name of the second parameter."""
    return attachment.push(bucket)
