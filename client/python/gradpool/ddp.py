"""The first door: gradients of a DistributedDataParallel model are averaged by the service.

    model = torch.nn.parallel.DistributedDataParallel(net)
    gradpool.ddp.attach(model)

One gradient, from loss.backward() to optimizer.step():

    DDP    has all gradients of a bucket and calls the hook with them
    hook   starts one push-pull of a group: each parameter's slice of the bucket is the next round
           of the tensor of that name; returns a Future
    lane   writes the mean over the slices, the same bits on every worker
    waiter wakes from the library's wait and completes the Future; backward() returns when all are

Because a parameter is a tensor and a bucket merely a group (Y1), the new buckets that DDP builds
after iteration 1 change nothing for the service. DDP's own process group is used for what DDP does
at set-up, for find_unused_parameters and for broadcast_buffers, never for gradients."""
import atexit
import os
import queue
import sys
import threading

import torch
import torch.distributed

from ._library import Item
from .client import connect, Job
from .errors import GradpoolError, mismatch

# How long the end of a script waits for the waiter to notice; it is idle then, unless a step is
# being abandoned.
_STOP_S = 2.0


def attach(model, job=None, endpoint=None, timeout_ms=0, wire=None):
    """Has the service average the gradients of `model`; returns an Attachment.

    model       torch.nn.parallel.DistributedDataParallel, float32 parameters on the CPU; before
                its first backward(), with no other communication hook
    job         the job's name, the same on every worker (None: GRADPOOL_JOB), or a Job that this
                process has joined
    endpoint    "gradpool://host:7077"; None: GRADPOOL_ENDPOINT
    timeout_ms  how long a bucket may take; 0: GRADPOOL_TIMEOUT_MS, or a minute
    wire        what gradients and their mean travel as: None (float32), "float16" or "bfloat16"

    Rank and number of workers are those of the model's process group. Raises GradpoolError."""
    if not isinstance(model, torch.nn.parallel.DistributedDataParallel):
        raise mismatch(f'attach() takes a DistributedDataParallel model, not a '
                       f'{type(model).__name__}')
    shapes = _parameters_of(model)
    client = None
    if not isinstance(job, Job):
        client = connect(endpoint)
        job = _join(client, job, model.process_group)
    try:
        return Attachment(model, client, job, shapes, timeout_ms, wire)
    except BaseException:
        if client is not None:
            client.close()
        raise


def _parameters_of(model):
    """{name: parameter} of what DDP averages. Mismatch: one is not float32 on the CPU."""
    ignored = set(getattr(model, 'parameters_to_ignore', ()))
    found = {name: parameter for name, parameter in model.module.named_parameters()
             if parameter.requires_grad and name not in ignored}
    for name, parameter in found.items():
        if parameter.dtype is not torch.float32 or parameter.device.type != 'cpu':
            raise mismatch(f"parameter '{name}' is {parameter.dtype} on {parameter.device}, "
                           'expected torch.float32 on cpu')
    return found


def _join(client, name, group):
    return client.join(name, torch.distributed.get_rank(group),
                       torch.distributed.get_world_size(group))


class Attachment:
    """A model whose gradients the service averages; made by attach(). Leaves the job when the
    process ends, or at close()."""

    def __init__(self, model, client, job, parameters, timeout_ms, wire):
        self.job = job
        self._client = client           # None when the caller joined the job
        self._timeout_ms = timeout_ms
        self._process = os.getpid()
        self._failure = None
        self._buckets = {}              # index -> (what lay there, its items)
        self._parameters = parameters   # held: their ids are keys below
        made = job.declare_all({name: p.numel() for name, p in parameters.items()}, wire=wire)
        self._tensors = {id(p): tensor for p, tensor in zip(parameters.values(), made)}
        self._queue = queue.SimpleQueue()
        self._waiter = threading.Thread(target=self._wait_all, name='gradpool-ddp', daemon=True)
        model.register_comm_hook(self, _average)
        self._before_forward = model.register_forward_pre_hook(lambda *_: self.check())
        self._waiter.start()
        atexit.register(self.close)

    def check(self):
        """Raises the first failure again, if there was one. Each forward() and each bucket does so
        too: backward() itself can only say "Unable to cast ... to Tensor"."""
        if self._failure is not None:
            raise self._failure

    def close(self):
        """Leaves the job, if attach() joined it. Does nothing in a forked child. After an abandoned
        step it leaves to the end of the process what is still under way."""
        if os.getpid() != self._process or self._queue is None:
            return
        atexit.unregister(self.close)
        self._before_forward.remove()
        self._queue.put(None)
        self._queue = None
        self._waiter.join(_STOP_S)
        if self._client is not None and not self._waiter.is_alive():
            self._client.close()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def push(self, bucket):
        """Starts the mean over a torch.distributed.GradBucket, in place. Returns its Future."""
        self.check()
        if self._queue is None:
            raise GradpoolError(9, f"job '{self.job.name}': the attachment has been closed")
        buffer, future = bucket.buffer(), torch.futures.Future()
        try:
            request = self.job.push_items(self._items_of(bucket, buffer), buffer)
        except BaseException as error:
            self._fail(error)
            raise
        self._queue.put((request, future, buffer))
        return future

    def _items_of(self, bucket, buffer):
        """One item a parameter, built once for each layout that DDP comes up with."""
        parameters = bucket.parameters()
        layout = (buffer.data_ptr(), tuple(map(id, parameters)))
        known = self._buckets.get(bucket.index())
        if known is not None and known[0] == layout:
            return known[1]
        items = (Item * len(parameters))()
        for item, parameter, gradient in zip(items, parameters, bucket.gradients()):
            item.tensor = self._tensors[id(parameter)].handle
            item.gradient = item.result = gradient.data_ptr()
        self._buckets[bucket.index()] = (layout, items)
        return items

    def _wait_all(self):
        """The waiter: completes Futures in the order of the pushes. After a failure the rest end
        with it at once; their buckets stay lent until the job is left."""
        pushes = self._queue
        while (push := pushes.get()) is not None:
            request, future, buffer = push
            try:
                self.check()
                request.wait(self._timeout_ms)
                future.set_result(buffer)
            except BaseException as error:
                self._fail(error)
                future.set_exception(self._failure)

    def _fail(self, error):
        """Keeps the first failure and says it once: what backward() raises hides it (Y3)."""
        if self._failure is None:
            self._failure = error
            print(f"gradpool: job '{self.job.name}', rank {self.job.rank}: {error}",
                  file=sys.stderr, flush=True)


def _average(attachment, bucket):
    """The hook. DDP insists on the name of its second parameter."""
    return attachment.push(bucket)
