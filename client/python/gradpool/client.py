"""A worker's view of a service: Client (a connection), Job (a membership), Tensor, Request.

    with gradpool.connect() as client, client.join('resnet-7', rank=0, workers=4) as job:
        weight = job.declare('fc.weight', 1000)
        job.push_pull(weight, gradient).wait()      # gradient now has the mean of all workers

Values are float32, contiguous, in CPU memory: torch tensors, numpy arrays or other writable
buffers, of any shape. Time-outs are in ms; 0 is GRADPOOL_TIMEOUT_MS, or a minute. Every call may
raise GradpoolError or one of its kinds (errors.py). Any thread may use an object, but only one
thread at a time a Request; no object works in a forked child."""
import collections
import ctypes
import errno
import os
import threading

from ._native import failing, lent
from ._native.backup import backup_spec, end_round
from ._native.binding import (check, DTYPES, DURABILITIES, encode, INT_MAX, Item, JobSpec, lib,
                              MEASURES, number, Membership, OPERATIONS, Options, path_of, RULES,
                              Settings, SIZE_MAX, TensorSpec, U32_MAX, U64_MAX, WORKER_LOSS)
from ._native.memory import Loan
from ._native.owned import Owned
from ._process.rounds import Request, Round, RoundCalls, Rounds
from .errors import GradpoolError, mismatch, Unreachable

DEFAULT_TIMEOUT_MS = 60000


def connect(endpoint=None, transport=None, interface=None, connect_timeout_ms=0):
    """Connects to the coordinator and returns a Client.

    endpoint            "gradpool://host:7077"; None: GRADPOOL_ENDPOINT
    transport           "auto", "shm" or "tcp"; None: GRADPOOL_TRANSPORT, or auto
    interface           for tcp; None: GRADPOOL_INTERFACE, or any
    connect_timeout_ms  0: GRADPOOL_CONNECT_TIMEOUT_MS, or 10000"""
    options = Options(encode(transport, 'transport'), encode(interface, 'interface'),
                      number(connect_timeout_ms, 'connect_timeout_ms', INT_MAX))
    handle = ctypes.c_void_p()
    check(lib.gp_connect(encode(endpoint, 'endpoint'), ctypes.byref(options), ctypes.byref(handle)),
          {errno.ENOENT: Unreachable})      # the name of the host is unknown
    return Client(handle)


def default_timeout_ms(otherwise=DEFAULT_TIMEOUT_MS):
    """Returns the time-out in milliseconds that an argument of 0 means. `otherwise`: result without
    GRADPOOL_TIMEOUT_MS."""
    return int(os.environ.get('GRADPOOL_TIMEOUT_MS') or otherwise)


def job_from_environment():
    """Returns (name or None, rank, workers) from environment variables: GRADPOOL_, torch, Horovod,
    MPI, jsrun, Flux, BytePS or Slurm; the name from GRADPOOL_JOB. Raises GradpoolError (ENOENT) if
    no pair is set. Raises Mismatch if one variable shows one process and another several."""
    spec = JobSpec()
    check(lib.gp_job_spec_from_environment(ctypes.byref(spec)))
    return (spec.name.decode() if spec.name else None), spec.rank, spec.workers


def _parts_per_million(loss_limit):
    if loss_limit is None:
        return 0
    if not isinstance(loss_limit, (int, float)) or not 0 < loss_limit < 1:
        raise mismatch(f'loss_limit is {loss_limit!r}, expected a number above 0 and below 1, '
                       'such as 0.05')
    return min(max(round(loss_limit * 1e6), 1), 999999)


class Client(Owned):
    """A connection to a service; made by connect()."""

    def __init__(self, handle):
        super().__init__(handle)
        self._jobs = []
        self._timeout_ms = default_timeout_ms()     # the variable is read once, as by the library

    def join(self, name=None, rank=None, workers=None, loss_limit=None, workers_max=None,
             on_worker_loss='fail', durability=None, backup=None):
        """Joins a job and returns a Job, without waiting for the other workers. A parameter that is
        None comes from the launcher's environment (job_from_environment). All parameters except
        `rank` are the same on every worker.

          loss_limit      slow-down that the job accepts from sharing lanes, 0.05 for 5 %; None: the
                          limit of the service and the tenant. The strictest of the three counts
          workers_max     largest number for Job.resize(); None: `workers`
          on_worker_loss  "fail", or "continue": the job continues without a lost rank
          durability      place of a copy of parameters and moments, which survives the loss of a
                          lane: "replica" (another aggregator), "worker" (workers' memory), "none"
                          (no copy); None: the default of the service
          backup          a gradpool.Backup or its rule, such as "static:12": rounds close without
                          the slowest ranks; needs durability "none". None: rounds wait for all"""
        name = name or os.environ.get('GRADPOOL_JOB')
        if rank is None or workers is None:
            _, rank, workers = job_from_environment()
        if not name:
            raise mismatch('the job has no name: give one or set GRADPOOL_JOB, '
                           'the same on every worker')
        if on_worker_loss not in WORKER_LOSS:
            raise mismatch(f"on_worker_loss is {on_worker_loss!r}, expected one of "
                           f"{', '.join(WORKER_LOSS)}")
        if durability not in DURABILITIES:
            raise mismatch(f"durability '{durability}', expected one of "
                           f"{', '.join(map(str, DURABILITIES))}")
        spec = JobSpec(encode(name, "the job's name"), number(rank, 'rank', U32_MAX),
                       number(workers, 'workers', U32_MAX), _parts_per_million(loss_limit),
                       number(workers_max or 0, 'workers_max', U32_MAX),
                       WORKER_LOSS[on_worker_loss], DURABILITIES[durability], backup_spec(backup))
        handle = ctypes.c_void_p()
        with self._using() as client:
            check(lib.gp_job_join(client, ctypes.byref(spec), ctypes.byref(handle)))
            job = Job(self, handle, name, spec.rank, spec.workers, backup)
            self._jobs.append(job)
        return job

    def close(self):
        """Leaves all jobs and disconnects."""
        self._close()

    def _end(self, handle):
        for job in self._jobs:
            job.leave()
        self._wait_for_users()
        lib.gp_disconnect(handle)


# Membership of a job: a version that grows with each change, the size set by the last resize, and
# the ranks.
Members = collections.namedtuple('Members', 'version wanted ranks')


class Tensor:
    """A declared tensor of a job; made by Job.declare(). Every use of the Tensor after undeclare(),
    or after the end of the job, raises an error."""
    __slots__ = ('job', 'name', 'elements', 'dtype', 'ranks', 'handle')

    def __init__(self, job, name, elements, dtype, ranks, handle):
        self.job, self.name, self.elements = job, name, elements
        self.dtype, self.ranks = dtype, ranks       # ranks None: all ranks of the job
        self.handle = handle                        # the handle is None after undeclare()

    @property
    def workers(self):
        return self.job.workers if self.ranks is None else len(self.ranks)

    def __repr__(self):
        return f"<Tensor '{self.name}', {self.elements} {self.dtype}, of {self.job}>"


def _settings(lr=0.0, weight_decay=0.0, momentum=0.0, dampening=0.0, betas=(0.9, 0.999),
              eps=1e-8):
    return Settings(lr, weight_decay, momentum, dampening, *betas, eps)


def _blocks(operation, tensor):
    """Returns the lengths of gradient and result, in multiples of the tensor's length (gradpool.h,
    gp_operation)."""
    if operation not in ('all-to-all', 'reduce-scatter', 'gather'):
        return 1, 1     # independent of the number of workers
    ranks = tensor.workers
    return ranks if operation != 'gather' else 1, ranks if operation != 'reduce-scatter' else 1


class Job(Owned):
    """This worker's membership in a job; made by Client.join(). leave() ends open requests.

      backup  argument of join(): a Backup or its rule; None: every round waits for all ranks"""

    def __init__(self, client, handle, name, rank, workers, backup=None):
        super().__init__(handle)
        self.client, self.name, self.rank, self.backup = client, name, rank, backup
        self._workers = workers     # number of workers at the join
        self._tensors = {}
        self._rounds, self._round_calls = Rounds(self), RoundCalls(self)
        self._lock = threading.Lock()
        self._lent, self.has_deal = lent.Lent(), False

    @property
    def workers(self):
        """The present number of workers; after leave() the number at the join."""
        try:
            return len(self.members().ranks)
        except GradpoolError:
            return self._workers

    def members(self):
        """Returns the newest membership that the coordinator has sent, as Members."""
        known = Membership()
        with self._using() as handle:
            check(lib.gp_job_membership(handle, ctypes.byref(known)))
        ranks = tuple(64 * i + bit for i, word in enumerate(known.ranks) for bit in range(64)
                      if word >> bit & 1)
        return Members(known.version, known.wanted, ranks)

    def resize(self, workers, timeout_ms=0):
        """Changes the number of workers: ranks below `workers` may join, all others have to leave
        (members().wanted). Returns when they have joined and left. Timeout names late ranks; the
        resize is valid until the next one. Main threads in the loop of a Run use Run.resize()."""
        if self.has_deal and threading.current_thread() is threading.main_thread():
            raise mismatch(f'resize() of {self} in the main thread, whose steps other workers wait '
                           'for; call resize() of the Run, which does not wait')
        workers = number(workers, 'workers', U32_MAX)
        timeout_ms = number(timeout_ms, 'timeout_ms', INT_MAX)
        self._wait(lib.gp_job_resize, workers, timeout_ms)

    def declare(self, name, elements, dtype='float32', rule=None, wire=None,
                measures=False, ranks=None):
        """Declares one tensor of `elements` values; returns a Tensor.

          dtype  "float32", "float64", "float16", "bfloat16", "int32" or "int64"; halves are
                 summed in float32 and rounded once, integers wrap and have no mean
          rule   None, or "sgd", "momentum", "nesterov", "adam", "adamw" (for "float32"): the lane
                 stores parameters, which broadcast() sets and update() steps
          wire   None, or "float16", "bfloat16": dtype of "float32" values on the wire, in both
                 directions
          measures  `gradpool jobs --json` shows the squares of gradients and mean, and the loss
          ranks  ranks whose pushes make a round, with this one; None: all ranks"""
        return self.declare_all({name: elements}, dtype, rule, wire, measures, ranks)[0]

    def declare_all(self, elements_by_name, dtype='float32', rule=None, wire=None,
                    measures=False, ranks=None):
        """Declares many tensors at once ({name: elements}), so that the service places them as a
        whole. Returns their Tensors in the same order. Mismatch: a name is known with another size,
        dtype or rule, here or on another rank (the text names ranks and values)."""
        for named in dtype, wire or dtype:
            if named not in DTYPES:
                raise mismatch(f"dtype '{named}', expected one of {', '.join(DTYPES)}")
        if rule not in RULES:
            raise mismatch(f"rule '{rule}', expected one of {', '.join(map(str, RULES))}")
        if ranks is not None:
            ranks = tuple(sorted(number(rank, 'a rank', U32_MAX) for rank in ranks))
        array = None if ranks is None else (ctypes.c_uint32 * len(ranks))(*ranks)
        count = len(elements_by_name)
        specs, handles = (TensorSpec * count)(), (ctypes.c_void_p * count)()
        for spec, (name, elements) in zip(specs, elements_by_name.items()):
            spec.name, spec.dtype = encode(name, "a tensor's name"), DTYPES[dtype]
            spec.elements = number(elements, f"elements of '{name}'", U64_MAX)
            spec.rule, spec.wire = RULES[rule], DTYPES[wire] if wire else 0
            spec.flags = MEASURES if measures else 0
            spec.ranks, spec.ranks_count = array, len(ranks or ())
        with self._using() as handle:
            check(lib.gp_tensors_declare(handle, specs, count, handles))
            return [self._declared(name, spec.elements, dtype, ranks, of_tensor)
                    for name, spec, of_tensor in zip(elements_by_name, specs, handles)]

    def _declared(self, name, elements, dtype, ranks, handle):
        """Returns the Tensor of a name: a second declaration returns the same Tensor."""
        with self._lock:
            tensor = self._tensors.get(name)
            if tensor is None or tensor.handle != handle:
                tensor = self._tensors[name] = Tensor(self, name, elements, dtype, ranks,
                                                      handle)
            return tensor

    def tensors(self):
        """Returns the Tensors that this process has declared."""
        return list(self._tensors.values())

    def undeclare(self, tensor):
        """Removes a tensor on this worker. Waits first for rounds whose Requests were dropped. No
        other thread may push the tensor. GradpoolError (EBUSY): a Request of the tensor is open.
        Timeout: a dropped round is open; the tensor stays."""
        self._rounds.await_dropped([self._known(tensor)], self.client._timeout_ms)
        self.remove(tensor)

    def remove(self, tensor):
        """undeclare() without a wait. GradpoolError (EBUSY): a round of the tensor is open."""
        with self._using():
            tensor = self._known(tensor)
            # from this point on no other call uses the handle
            handle, tensor.handle = tensor.handle, None
            try:
                check(lib.gp_tensor_undeclare(handle))
            except GradpoolError:
                tensor.handle = handle
                raise
            del self._tensors[tensor.name]

    def alloc(self, size):
        """Returns a writable buffer of `size` bytes with undefined values, for torch.frombuffer()
        or numpy.frombuffer(). Lanes on this host read gradients in the buffer without a copy, and
        write results to it, unless a result replaces its gradient. The memory exists as long as a
        tensor or array uses it, also after the job. GradpoolError: ENOMEM, ENOSPC, EMFILE."""
        size = number(size, 'bytes', SIZE_MAX)
        with self._using() as handle:
            return self._lent.take(handle, size)

    def trim(self):
        """Frees unused memory of alloc() that the job stores for the next call."""
        with self._using() as handle:
            self._lent.trim(handle)

    def pin(self, address, size, pin, unpin):
        """Pins a buffer of alloc() for copies to and from a GPU. Calls pin(address, size) unless
        these pages are pinned, and unpin(address) before the job is left."""
        with self._using():
            self._lent.pin(address, size, pin, unpin)

    def push_pull(self, tensor, gradient, result=None, operation='mean'):
        """Starts the sum or mean of a tensor over all workers; returns a Request. Waits only for a
        round of the tensor whose Request was dropped. Timeout: the text names late ranks.

        tensor     a Tensor, or the name of one
        gradient   the values of this worker; do not write to them until the request is done
        result     destination of the result; None: the gradient's memory
        operation  "mean", "sum", "min", "max" or "product", the same on every worker. With W
                   workers "gather" has a result of W times the tensor's elements (None: not wanted
                   here), "all-to-all" a gradient and a result of this length, "reduce-scatter" a
                   gradient of this length and a result of the tensor's length"""
        number_of = _number_of(operation)
        tensor, loan = self._known(tensor), Loan()
        try:
            given, taken = self._places(tensor, gradient, result, operation, loan)
        except BaseException:
            loan.end()
            raise
        return self._start((tensor,), loan, lambda _, request: lib.gp_push_pull(
            tensor.handle, given, taken, number_of, request))

    def push_pull_group(self, items, operation='mean'):
        """Pushes several (tensor, gradient, result or None) as one Request, as push_pull() pushes
        one."""
        _number_of(operation)
        tensors, array, loan = self._items(items, operation)
        return self.push_items(tensors, array, loan, operation)

    def update(self, tensor, gradient, parameters=None, **settings):
        """Starts one step of a tensor with an update rule; returns a Request. The lane steps with
        the mean of the gradients; every rank gets the new parameters.

        parameters  destination of the new parameters; None: the gradient's memory
        settings    settings of this step, named as in torch.optim: lr, weight_decay, momentum,
                    dampening, betas, eps. Those of rank 0 are used. Without settings,
                    an elastic job uses those of the tensor's last step"""
        return self.update_group([(tensor, gradient, parameters)], **settings)

    def update_group(self, items, **settings):
        """Updates several (tensor, gradient, parameters or None) as one Request, as update()
        updates one."""
        given = ctypes.byref(_settings(**settings)) if settings else None
        tensors, array, loan = self._items(items, 'mean')
        return self._start(tensors, loan, lambda handle, request: lib.gp_update_group(
            handle, array, len(array), given, request))

    def _items(self, items, operation):
        """Returns (tensors, a ctypes array of Item, the Loan of their memory)."""
        array, tensors, loan = (Item * len(items))(), [], Loan()
        try:
            for item, (tensor, gradient, result) in zip(array, items):
                tensor = self._known(tensor)
                tensors.append(tensor)
                item.tensor = tensor.handle
                item.gradient, item.result = self._places(tensor, gradient, result, operation,
                                                          loan)
        except BaseException:
            loan.end()
            raise
        return tensors, array, loan

    @staticmethod
    def _places(tensor, gradient, result, operation, loan):
        """Returns the addresses of a gradient and of its result, or None for an unwanted result."""
        given, taken = _blocks(operation, tensor)
        source = loan.address(gradient, given * tensor.elements,
                              _What('gradient', tensor, operation, given), tensor.dtype)
        if result is not None:
            return source, loan.address(result, taken * tensor.elements,
                                        _What('result', tensor, operation, taken), tensor.dtype)
        if operation == 'gather':
            return source, None
        if given != taken:
            raise mismatch(f"'{tensor.name}': a {operation} of {tensor.workers} workers cannot "
                           'overwrite its gradient; pass a result')
        return source, source

    def push_items(self, tensors, array, loan, operation='mean'):
        """push_pull_group() with a prepared ctypes array of Item, for callers that push the same
        memory repeatedly.

          tensors    the tensors of the items
          loan       the Loan of the items' memory, which is not checked here"""
        return self._start(tensors, loan, lambda handle, request: lib.gp_push_pull_group(
            handle, array, len(array), OPERATIONS[operation], request))

    def broadcast(self, tensor, values, root=0):
        """Starts copying rank `root`'s `values` to every worker's `values`; returns a Request. For
        a tensor with an update rule the values become its parameters, before the first step."""
        root = number(root, 'root', U32_MAX)
        return self._start_one(tensor, values, lambda handle, place, request: lib.gp_broadcast(
            handle, place, root, request))

    def send(self, tensor, values):
        """Starts a send of `values` to the other rank of a tensor that was declared for two ranks.
        Returns a Request, which is done when the other rank has the values."""
        return self._start_one(tensor, values, lib.gp_send)

    def receive(self, tensor, values):
        """Starts a receive of the values that the other rank sends; returns a Request."""
        return self._start_one(tensor, values, lib.gp_receive)

    def _start_one(self, tensor, values, begin):
        """Returns a Request for the round that `begin`(handle of the tensor, address of the values,
        request) starts."""
        tensor, loan = self._known(tensor), Loan()
        try:
            place = loan.address(values, tensor.elements, f"values of '{tensor.name}'",
                                 tensor.dtype)
        except BaseException:
            loan.end()
            raise
        return self._start([tensor], loan, lambda _, request: begin(tensor.handle, place, request))

    def _start(self, tensors, loan, begin, kind=Round):
        """Returns a Request for the round that `begin`(job, address for the request) starts. The
        loan ends with the round. A tensor's round that the script has dropped ends first."""
        round_ = kind(self._rounds, tensors, loan)
        try:
            if not self._begins(round_, begin):
                self._rounds.await_dropped(tensors, self.client._timeout_ms)
                self._begins(round_, begin, is_last_try=True)
            return self._rounds.request_of(round_)
        except BaseException:
            round_.give_up()
            raise

    def _begins(self, round_, begin, is_last_try=False):
        """Begins the round. False: a last round is open; the last try then raises an error."""
        with self._using() as job:
            self._rounds.raise_dropped()
            for tensor in round_.tensors:
                if tensor.handle is None or tensor.job is not self:
                    # raises an error with the reason, if the tensor is unknown
                    self._known(tensor)
            error = begin(job, ctypes.byref(round_.handle))
            if error == -errno.EBUSY and not is_last_try:
                return False
            check(error)
            return True

    def table(self, name, dim, rule='sgd', **options):
        """Declares keyed rows; returns a Table. Parameters: gradpool.tables.table.declare()."""
        from .tables.table import declare
        return declare(self, name, dim, rule, **options)

    def stages(self, plan, **options):
        """Runs stages with their own numbers of workers. Parameters: gradpool.stages.run()."""
        from .stages import run
        return run(self, plan, **options)

    def clock(self):
        """Ends this rank's clock in all tables. Never waits. Raises an earlier error of a push."""
        with self._using() as handle:
            check(lib.gp_clock(handle))
            self._rounds.raise_dropped()

    def tell_loss(self, loss):
        """Sets this rank's loss of the iteration whose gradients are pushed next."""
        with self._using() as handle:
            check(lib.gp_job_tell_loss(handle, float(loss)))

    def end_round(self, loss=float('nan'), timeout_ms=0):
        """Ends this rank's round in a job with backup workers. Called after one push of each tensor
        (update() with settings on every rank, or push_pull()), and before the wait(). Returns an
        EndOfRound. Results, the same on all ranks that get them, are in place unless it goes_on."""
        loss, timeout_ms, ends = float(loss), number(timeout_ms, 'timeout_ms', INT_MAX), []
        self._round_calls.run(lambda handle: ends.append(end_round(handle, loss, timeout_ms)) or 0)
        return ends[0]

    def next_round(self, timeout_ms=0):
        """Fetches the sums of the next round that closed without this rank, into the results of
        its last push_pull(). Returns False if no round is left; push again only then."""
        timeout_ms = number(timeout_ms, 'timeout_ms', INT_MAX)
        return self._round_calls.run(lib.gp_round_next, timeout_ms) == 1

    def passed(self):
        """Returns the newest closed round that drops this rank's gradient; 0: none. Never waits."""
        with self._using() as handle:
            return lib.gp_job_passed(handle)

    def barrier(self, timeout_ms=0):
        """Returns when every worker has called this method equally often. For a late worker the
        count begins at its first call."""
        timeout_ms = number(timeout_ms, 'timeout_ms', INT_MAX)
        self._wait(lib.gp_barrier, timeout_ms)

    def snapshot(self, path):
        """Saves parameters, moments and step counts of all tensors with a rule, and all tables, to
        the file `path`. The lowest rank present writes the file, completely or not at all. Every
        rank calls the method between the same two steps; after a Timeout all ranks call again."""
        self._end_dropped()
        self._wait(lib.gp_job_snapshot, path_of(path))

    def start_timeline(self, path):
        """Records the rounds of all workers and lanes of the job in the file `path`, for trace
        viewers, until stop_timeline(), at most for an hour. One rank calls the method."""
        self._wait(lib.gp_job_timeline_start, path_of(path))

    def stop_timeline(self):
        """Ends the recording and closes the file. Raises an error that has ended the recording
        earlier. Without a recording the call only logs a line."""
        self._wait(lib.gp_job_timeline_stop)

    def restore(self, path, parameters=None):
        """Restores a snapshot, on every rank, after the declare of the same tensors with rules and
        the same tables; the lowest rank reads it. Training continues to the same bits as before.

          parameters  {Tensor or its name: values}; other tensors are restored on lanes only"""
        self._end_dropped()
        loan, array = Loan(), (Item * len(parameters or {}))()
        try:
            for item, (tensor, values) in zip(array, (parameters or {}).items()):
                tensor = self._known(tensor)
                item.tensor = tensor.handle
                item.result = loan.address(values, tensor.elements,
                                           f"parameters of '{tensor.name}'", tensor.dtype)
        except BaseException:
            loan.end()
            raise
        self._wait(lib.gp_job_restore, path_of(path), array, len(array), finish=loan.end)

    def _end_dropped(self):
        """Waits for all rounds that the script has dropped, and raises their error."""
        self._rounds.await_dropped(self._tensors.values(), self.client._timeout_ms)
        self._rounds.raise_dropped()

    def _wait(self, call, *arguments, finish=None):
        """Returns the result of a call of the library for this job; leave() ends the call. Python's
        main thread starts another thread for the call, so that a Ctrl-C is raised at once."""
        def run():
            try:
                with self.client._using():
                    results.append(check(call(self._live(), *arguments)))
            except GradpoolError as error:
                errors.append(error)
            finally:
                if finish:
                    finish()
        errors, results = [], []
        if threading.current_thread() is threading.main_thread():
            thread = threading.Thread(target=run, daemon=True)
            thread.start()
            thread.join()
        else:
            run()
        if errors:
            raise errors[0]
        return results[0]

    def leave(self):
        """Leaves the job. Open requests end with ECANCELED; the tensors of the job are removed."""
        self._close()

    def is_left(self):
        """Returns True after leave(), and after close() of the client."""
        return self._handle is None

    def _known(self, tensor):
        """Returns the Tensor of this job for a Tensor or a name. Raises an error for a tensor of
        another job and for an undeclared tensor, whose handle would crash the library (Y7)."""
        if not isinstance(tensor, Tensor):
            if tensor not in self._tensors:
                raise mismatch(f"tensor '{tensor}' has not been declared in {self}; call "
                               'declare() first')
            tensor = self._tensors[tensor]
        if tensor.job is not self:
            raise mismatch(f"tensor '{tensor.name}' is of {tensor.job}, not of {self}; "
                           'pass a tensor of this job')
        self._live()
        if tensor.handle is None:
            raise mismatch(f"tensor '{tensor.name}' of {self} has been undeclared; declare "
                           'the tensor again')
        return tensor

    def _end(self, handle):
        self._wait_for_users()
        self._rounds.tell_dropped()
        self._lent.leave(handle)
        failing.leave(handle)
        self._rounds.cancel()

    def __repr__(self):
        return f"job '{self.name}', rank {self.rank}"


def _number_of(operation):
    if operation not in OPERATIONS:
        raise mismatch(f"operation '{operation}', expected one of {', '.join(OPERATIONS)}")
    return OPERATIONS[operation]


class _What:
    """Description of a gradient or a result for errors, formatted only when an error needs it."""
    __slots__ = ('_role', '_tensor', '_operation', '_blocks')

    def __init__(self, role, tensor, operation, blocks):
        self._role, self._tensor, self._operation, self._blocks = role, tensor, operation, blocks

    def __str__(self):
        text = f"{self._role} of '{self._tensor.name}'"
        return (text if self._blocks == 1
                else f'{text}, for a {self._operation} of {self._blocks} workers')
