"""A worker's view of a service: Client (a connection), Job (a membership), Tensor, Request.

    with gradpool.connect() as client, client.join('resnet-7', rank=0, workers=4) as job:
        weight = job.declare('fc.weight', 1000)
        job.push_pull(weight, gradient).wait()      # gradient now holds the mean of all workers

Values are float32, contiguous, in CPU memory: torch tensors, numpy arrays or other writable
buffers, of any shape. Time-outs are in ms; 0 is GRADPOOL_TIMEOUT_MS, or a minute. Every call may
raise GradpoolError or one of its kinds (errors.py). Objects may be used from any thread, one
Request from one thread at a time; none of them in a forked child."""
import ctypes
import errno
import os
import threading
import typing

from ._library import (check, DTYPES, encode, Item, JobSpec, lib, OPERATIONS, Options, RULES,
                       Settings, TensorSpec)
from ._memory import address
from .errors import error_of, Forked, GradpoolError, mismatch, Timeout

DEFAULT_TIMEOUT_MS = 60000
SIGNALS_MS = 200    # how long a signal may wait for its Python handler


def connect(endpoint=None, transport=None, interface=None, connect_timeout_ms=0):
    """Connects to the coordinator and returns a Client.

    endpoint            "gradpool://host:7077"; None: GRADPOOL_ENDPOINT
    transport           "auto", "shm" or "tcp"; None: GRADPOOL_TRANSPORT, or auto
    interface           for tcp; None: GRADPOOL_INTERFACE, or any
    connect_timeout_ms  0: GRADPOOL_CONNECT_TIMEOUT_MS, or 10000"""
    options = Options(encode(transport), encode(interface), connect_timeout_ms)
    handle = ctypes.c_void_p()
    check(lib.gp_connect(encode(endpoint), ctypes.byref(options), ctypes.byref(handle)))
    return Client(handle)


def job_from_environment():
    """(name or None, rank, workers) as the launcher set them: GRADPOOL_, torch, Open MPI, PMI or
    Slurm variables; the name from GRADPOOL_JOB. Raises GradpoolError (ENOENT) when none is set."""
    spec = JobSpec()
    check(lib.gp_job_spec_from_environment(ctypes.byref(spec)))
    return (spec.name.decode() if spec.name else None), spec.rank, spec.workers


class _Owned:
    """Something with an end, in the process that made it (Y4). Subclasses say how in _end()."""

    def __init__(self, handle):
        self._handle = handle
        self._process = os.getpid()

    def _live(self):
        if os.getpid() != self._process:
            raise Forked(errno.ECHILD, f'this {type(self).__name__} belongs to process '
                         f'{self._process}; a forked child must not use it')
        if self._handle is None:
            raise GradpoolError(errno.EBADF, f'this {type(self).__name__} has been closed')
        return self._handle

    def _close(self):
        """Ends it once, and never in a forked child."""
        handle, self._handle = self._handle, None
        if handle is not None and os.getpid() == self._process:
            self._end(handle)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._close()

    def __del__(self):
        if getattr(self, '_handle', None) is not None:
            self._close()


class Client(_Owned):
    """A connection to a service; made by connect()."""

    def __init__(self, handle):
        super().__init__(handle)
        self._jobs = []

    def join(self, name=None, rank=None, workers=None):
        """Joins a job and returns a Job; does not wait for the other workers. What is None comes
        from the launcher's environment (job_from_environment)."""
        handle = self._live()
        name = name or os.environ.get('GRADPOOL_JOB')
        if rank is None or workers is None:
            _, rank, workers = job_from_environment()
        if not name:
            raise mismatch('the job has no name: give one or set GRADPOOL_JOB, '
                           'the same on every worker')
        spec = JobSpec(encode(name), rank, workers)
        job = ctypes.c_void_p()
        check(lib.gp_job_join(handle, ctypes.byref(spec), ctypes.byref(job)))
        self._jobs.append(Job(self, job, name, rank, workers))
        return self._jobs[-1]

    def close(self):
        """Leaves all jobs and disconnects."""
        self._close()

    def _end(self, handle):
        for job in self._jobs:
            job.leave()
        lib.gp_disconnect(handle)


class Tensor(typing.NamedTuple):
    """A declared tensor of a job. Equal by name within its job."""
    name: str
    elements: int
    handle: int
    dtype: str


class Job(_Owned):
    """This worker's membership in a job; made by Client.join(). Leaving ends open requests."""

    def __init__(self, client, handle, name, rank, workers):
        super().__init__(handle)
        self.client, self.name, self.rank, self.workers = client, name, rank, workers
        self._tensors = {}
        self._open = set()      # requests whose buffers are lent
        self._lock = threading.Lock()

    def declare(self, name, elements, dtype='float32', rule=None, wire=None):
        """Declares one tensor of `elements` values; returns a Tensor.

        dtype  "float32", "float64", "float16", "bfloat16", "int32" or "int64"; halves are summed in
               float32 and rounded once, integers wrap and have no mean
        rule   None, or "sgd", "momentum", "nesterov", "adam", "adamw": its lane keeps parameters,
               which broadcast() sets and update() steps (of "float32")
        wire   None, or "float16", "bfloat16": what values of "float32" travel as, both ways"""
        return self.declare_all({name: elements}, dtype, rule, wire)[0]

    def declare_all(self, elements_by_name, dtype='float32', rule=None, wire=None):
        """Declares many tensors at once ({name: elements}), so that they are placed as a whole.
        Returns their Tensors in the same order. Mismatch: a name is known with another size, dtype
        or rule, here or on another rank (the text names ranks and values)."""
        handle = self._live()
        for named in dtype, wire or dtype:
            if named not in DTYPES:
                raise mismatch(f"dtype '{named}', expected one of {', '.join(DTYPES)}")
        if rule not in RULES:
            raise mismatch(f"rule '{rule}', expected one of {', '.join(map(str, RULES))}")
        count = len(elements_by_name)
        specs, handles = (TensorSpec * count)(), (ctypes.c_void_p * count)()
        for spec, (name, elements) in zip(specs, elements_by_name.items()):
            spec.name, spec.dtype, spec.elements = encode(name), DTYPES[dtype], elements
            spec.rule, spec.wire = RULES[rule], DTYPES[wire] if wire else 0
        check(lib.gp_tensors_declare(handle, specs, count, handles))
        made = [Tensor(name, elements, value, dtype)
                for (name, elements), value in zip(elements_by_name.items(), handles)]
        self._tensors.update((tensor.name, tensor) for tensor in made)
        return made

    def undeclare(self, tensor):
        """Forgets a tensor on this worker. GradpoolError (EBUSY) while a round of it is open."""
        self._live()
        tensor = self._known(tensor)
        check(lib.gp_tensor_undeclare(tensor.handle))
        del self._tensors[tensor.name]

    def push_pull(self, tensor, gradient, result=None, operation='mean'):
        """Starts the sum or mean of a tensor over all workers; returns a Request at once.

        tensor     a Tensor, or the name of one
        gradient   its values on this worker; lent until the request is done
        result     where the result goes; None: over the gradient
        operation  "mean" or "sum", the same on every worker"""
        return self.push_pull_group([(tensor, gradient, result)], operation)

    def push_pull_group(self, items, operation='mean'):
        """push_pull() of several (tensor, gradient, result or None) as one Request."""
        array, kept = self._items(items)
        return self.push_items(array, kept, operation)

    def update(self, tensor, gradient, parameters=None, **settings):
        """Starts one step of a tensor with an update rule; returns a Request. Its lane takes the
        mean of the gradients; every rank gets the new parameters.

        parameters  where they go; None: over the gradient
        settings    of rank 0, for this step, named as in torch.optim: lr, weight_decay, momentum,
                    dampening, betas, eps; what other ranks give is not looked at"""
        return self.update_group([(tensor, gradient, parameters)], **settings)

    def update_group(self, items, lr=0.0, weight_decay=0.0, momentum=0.0, dampening=0.0,
                     betas=(0.9, 0.999), eps=1e-8):
        """update() of several (tensor, gradient, parameters or None) as one Request."""
        handle = self._live()
        array, kept = self._items(items)
        settings = Settings(lr, weight_decay, momentum, dampening, *betas, eps)
        request = ctypes.c_void_p()
        check(lib.gp_update_group(handle, array, len(array), ctypes.byref(settings),
                                  ctypes.byref(request)))
        return Request(self, request, (array, kept))

    def _items(self, items):
        """As a ctypes array, and what must live as long as it is lent."""
        array, kept = (Item * len(items))(), []
        for item, (tensor, gradient, result) in zip(array, items):
            tensor = self._known(tensor)
            item.tensor = tensor.handle
            item.gradient = address(gradient, tensor.elements, f"gradient of '{tensor.name}'",
                                    tensor.dtype)
            item.result = item.gradient if result is None else address(
                result, tensor.elements, f"result of '{tensor.name}'", tensor.dtype)
            kept.append((gradient, result))
        return array, kept

    def push_items(self, array, kept, operation='mean'):
        """push_pull_group() of a prepared ctypes array of Item, for callers that push the same
        places again and again. `kept`: what must live until the request is done."""
        handle = self._live()
        if operation not in OPERATIONS:
            raise mismatch(f"operation '{operation}', expected one of {', '.join(OPERATIONS)}")
        request = ctypes.c_void_p()
        check(lib.gp_push_pull_group(handle, array, len(array), OPERATIONS[operation],
                                     ctypes.byref(request)))
        return Request(self, request, (array, kept))

    def broadcast(self, tensor, values, root=0):
        """Starts copying rank `root`'s `values` into every worker's `values`; returns a Request. Of
        a tensor with an update rule they become its parameters, before the first step."""
        self._live()
        tensor = self._known(tensor)
        request = ctypes.c_void_p()
        place = address(values, tensor.elements, f"values of '{tensor.name}'", tensor.dtype)
        check(lib.gp_broadcast(tensor.handle, place, root, ctypes.byref(request)))
        return Request(self, request, values)

    def barrier(self, timeout_ms=0):
        """Returns when every worker of the job has called it as often."""
        check(lib.gp_barrier(self._live(), timeout_ms))

    def leave(self):
        """Says goodbye. Open requests end with ECANCELED; tensors of the job are forgotten."""
        self._close()

    def _known(self, tensor):
        if isinstance(tensor, Tensor):
            return tensor
        if tensor in self._tensors:
            return self._tensors[tensor]
        raise mismatch(f"tensor '{tensor}' has not been declared in job '{self.name}'")

    def _end(self, handle):
        with self._lock:
            for request in self._open:
                request.cancel()
            self._open.clear()
        lib.gp_job_leave(handle)


class Request:
    """A push-pull or broadcast under way. It keeps its buffers alive until it is done, also when
    nobody holds the Request (Y2)."""

    def __init__(self, job, handle, kept):
        self._job, self._handle, self._kept, self._error = job, handle, kept, None
        with job._lock:
            job._open.add(self)

    def wait(self, timeout_ms=0):
        """Returns when every result is in place and the gradient may be written again. Timeout: not
        yet; wait again. Any other error ends the request, and later calls raise it again."""
        if self._handle is not None:
            self._job._live()
            left_ms = timeout_ms or int(os.environ.get('GRADPOOL_TIMEOUT_MS') or DEFAULT_TIMEOUT_MS)
            while left_ms > SIGNALS_MS and lib.gp_poll(self._handle, SIGNALS_MS) == 0:
                left_ms -= SIGNALS_MS  # between two of these a Ctrl-C is raised
            code = lib.gp_wait(self._handle, left_ms)
            try:
                check(code)
            except Timeout:
                raise
            except GradpoolError as error:
                self._finish(error)
            else:
                self._finish(None)
        if self._error is not None:
            raise self._error

    def done(self):
        """True when wait() will not block. Never blocks."""
        return self._handle is None or lib.gp_poll(self._handle, 0) == 1

    def cancel(self):
        """The job is being left: the library frees the request."""
        self._handle = self._kept = None
        self._error = error_of(-errno.ECANCELED, f"job '{self._job.name}' has been left")

    def _finish(self, error):
        self._handle, self._kept, self._error = None, None, error
        with self._job._lock:
            self._job._open.discard(self)
