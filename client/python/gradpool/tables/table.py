"""A worker's view of a table: Table, made by Job.table(), and Pull. TABLES.md is the guide."""
import contextlib
import ctypes
import errno

from .._native.binding import (check, CONSISTENCIES, DTYPES, DURABILITIES, encode, lib, number,
                               OPERATIONS, path_of, ROW_INITIALS, ROW_RULES, RowSettings,
                               TableSpec, U32_MAX, U64_MAX)
from .._native.memory import Loan
from .._process.rounds import Round
from ..errors import mismatch
from .arrays import Keys

DTYPES_OF_ROWS = 'float32', 'float16', 'bfloat16'
COMBINES = 'mean', 'sum'

# Settings of each rule besides the rate, with the defaults of torch.optim.
_SETTINGS = {
    'sgd': {'weight_decay': 0.0},
    'adagrad': {'weight_decay': 0.0, 'eps': 1e-10},
    'adagrad-one': {'weight_decay': 0.0, 'eps': 1e-10},
    'adam': {'weight_decay': 0.0, 'betas': (0.9, 0.999), 'eps': 1e-8},
    'ftrl': {'beta': 1.0, 'l1': 0.0, 'l2': 0.0},
}


def declare(job, name, dim, rule='sgd', *, dtype='float32', keys=None, combine='mean', initial=0.0,
            seed=0, consistency=None, durability=None):
    """Job.table(): declares a table, the same on every rank, before the first clock(). Waits for
    connections to its lanes. Returns a Table.

      dim      values of a row, 1 to 4096
      rule     "sgd", "adagrad", "adagrad-one" (one sum for a row), "adam" (lazy) or "ftrl"
      dtype    dtype of the stored rows: "float32", "float16" or "bfloat16"; pulled rows and pushed
               gradients are float32
      keys     every key is smaller; None: any 64-bit key
      combine  "mean": the sum of all gradients of a row divided by the number of ranks; or "sum"
      initial  values of a row before its first update: a number, ("uniform", v) between -v and v,
               or ("normal", v) with the standard deviation v; zeros for "ftrl"
      seed     of initial values, which depend on seed, key and element alone
      consistency  "bsp": updates after the end of each clock, always the same bits; "ssp:2": each
               push is applied on arrival, and a pull waits for ranks more than 2 clocks behind;
               "asp": a pull never waits; None: as the stage says, or "bsp" without stages

      durability  "replica": a lane of another aggregator has a copy of the rows, and continues
               after the loss of an aggregator; None or "none": the table ends with an aggregator
               that serves its rows. All tables of a job agree

    Mismatch: a wrong argument, or another declaration on this rank or another one. GradpoolError:
    EOPNOTSUPP, the job or the transport serves no tables; EBUSY, a clock has ended."""
    spec = TableSpec(
        name=encode(name, "the table's name"), dim=number(dim, f"dim of table '{name}'", U32_MAX),
        dtype=DTYPES[_one_of(dtype, DTYPES_OF_ROWS, f"dtype of table '{name}'")],
        wire=DTYPES['float32'], rule=ROW_RULES[_one_of(rule, ROW_RULES, f"rule of table '{name}'")],
        keys=0 if keys is None else number(keys, f"keys of table '{name}'", U64_MAX),
        combine=OPERATIONS[_one_of(combine, COMBINES, f"combine of table '{name}'")],
        seed=number(seed, f"seed of table '{name}'", U64_MAX))
    spec.initial, spec.initial_value = _initial(initial, f"initial of table '{name}'")
    spec.consistency, spec.staleness = _consistency(consistency, f"consistency of table '{name}'")
    spec.durability = DURABILITIES[
        durability and _one_of(durability, DURABILITIES, f"durability of table '{name}'")]
    handle = ctypes.c_void_p()
    with job._using() as of_job:
        check(lib.gp_table_declare(of_job, ctypes.byref(spec), ctypes.byref(handle)))
    return Table(job, name, spec.dim, rule, handle)


def _one_of(value, allowed, what):
    if value not in allowed:
        raise mismatch(f"{what} is {value!r}; choose one of {', '.join(allowed)}")
    return value


def _real(value, what):
    try:
        return float(value)
    except (TypeError, ValueError):
        raise mismatch(f'{what} is {value!r}, expected a real number') from None


def _consistency(consistency, what):
    """Returns (a value of enum gp_consistency, the staleness)."""
    if consistency is None:
        return 0, 0
    word, colon, staleness = str(consistency).partition(':')
    is_number = staleness.isascii() and staleness.isdigit() and int(staleness) <= U32_MAX
    if word not in CONSISTENCIES or (word == 'ssp') != bool(colon) or bool(colon) != is_number:
        raise mismatch(f'{what} is {consistency!r}; choose "bsp", "asp", or "ssp:N" with the '
                       'number of clocks that a rank may be ahead')
    return CONSISTENCIES[word], int(staleness or 0)


def _initial(initial, what):
    """Returns (a value of enum gp_initial, its value)."""
    if not isinstance(initial, (tuple, list)):
        value = _real(initial, what)
        return ROW_INITIALS['constant' if value != 0 else 'zeros'], value
    if len(initial) != 2 or initial[0] not in ('uniform', 'normal'):
        raise mismatch(f"{what} is {initial!r}, expected a number, ('uniform', v) or "
                       "('normal', v)")
    return ROW_INITIALS[initial[0]], _real(initial[1], what)


class Pull:
    """Rows that are being pulled; made by Table.start_pull(). A Pull that the script drops is
    completed all the same."""
    __slots__ = ('_request', '_rows')

    def __init__(self, request, rows):
        self._request, self._rows = request, rows

    def wait(self, timeout_ms=0):
        """Returns the rows. Timeout: the text names the ranks that have not ended the previous
        clock; call wait() again. GradpoolError (EDQUOT): `timeout_ms` is over, and pushes wait
        because a limit of table memory is reached; the text names the limit; call wait() again. Any
        other error ends the Pull, and later calls raise it again."""
        self._request.wait(timeout_ms)
        return self._rows

    def done(self, timeout_ms=0):
        """Returns True if wait() will not block; False if rows are missing after `timeout_ms`."""
        return self._request.done(timeout_ms)


class _RowsRound(Round):
    """The round of a pull or a push, which stays open while pushes wait for table memory."""
    __slots__ = ()
    _OPEN = *Round._OPEN, -errno.EDQUOT


class _PushRound(_RowsRound):
    """The round of a push. A wait before clock() is an error, which the library returns at once;
    the polls of Round would hide this error until the time-out."""
    __slots__ = ()

    def _wait(self, timeout_ms):
        handle = self.handle
        if handle is not None and self._wait_in_c(handle, 1) == -errno.EDEADLK:
            check(-errno.EDEADLK)
        super()._wait(timeout_ms)


class Table:
    """Rows of `dim` float32 values by key; made by Job.table().

      keys       whole numbers from 0, in an array of any shape; a key may occur several times
      rows       float32, one row for each key: the shape of the keys, and `dim`. A torch tensor
                 for keys in a torch tensor, else a numpy array
      gradients  float32, of the shape of the rows, contiguous, on the CPU"""
    __slots__ = ('job', 'name', 'dim', 'rule', '_handle')

    def __init__(self, job, name, dim, rule, handle):
        self.job, self.name, self.dim, self.rule, self._handle = job, name, dim, rule, handle

    def set(self, lr, **settings):
        """Sets the settings of the updates from this clock on, named as in torch.optim. The
        settings of the lowest rank are used; settings of other ranks are only checked. Never waits.

          settings  weight_decay; eps with "adagrad", "adagrad-one" and "adam"; betas with "adam";
                    beta, l1 and l2 with "ftrl", which has no weight_decay. A missing value has the
                    default of torch.optim"""
        known = _SETTINGS[self.rule]
        for name in settings:
            if name not in known:
                raise mismatch(f"{self}: rule {self.rule} has no setting '{name}'; its settings "
                               f"are lr, {', '.join(known)}")
        values = self._numbers({**known, **settings, 'lr': lr})
        given = RowSettings(rate=values.pop('lr'), epsilon=values.pop('eps', 0.0), **values)
        with self.job._using():
            check(lib.gp_table_set(self._handle, ctypes.byref(given)))

    def _numbers(self, values):
        betas = values.pop('betas', (0.0, 0.0))
        if not isinstance(betas, (tuple, list)) or len(betas) != 2:
            raise mismatch(f'{self}: betas is {betas!r}, expected two numbers')
        values.update(beta1=betas[0], beta2=betas[1])
        return {name: _real(value, f'{self}: {name}') for name, value in values.items()}

    def pull(self, keys, timeout_ms=0):
        """Returns the rows after the update of the last clock. Waits until all ranks have ended
        that clock. For a key without a row the initial values are returned, and no row is created.
        Timeout: the text names the late ranks."""
        return self.start_pull(keys).wait(timeout_ms)

    def start_pull(self, keys):
        """Starts a pull in this clock; returns a Pull. The script may change `keys` at once.
        GradpoolError: EBUSY, a lane stores no further request; wait for an open one."""
        keys = Keys(self, keys)
        rows, place = keys.empty_rows()
        return Pull(self._start(keys, Loan(rows), _RowsRound, lambda batch, request: lib.gp_pull(
            batch, place, request)), rows)

    def push(self, keys, gradients):
        """Adds gradients to this clock. Gradients of the same key are added up in the order of
        their positions. After clock() on all ranks each row with a gradient gets one update. The
        script may change both arrays at once. clock() raises a later error of the push. The text of
        EDOM has the number of rows that were skipped because their gradients were not finite."""
        with self._lent(keys, gradients) as (keys, place), self._batch(keys) as batch:
            check(lib.gp_push(batch, place, None))

    def start_push(self, keys, gradients):
        """Like push(), but returns a Request, whose wait() returns when the update has been
        applied, and raises its error. A wait() before clock() raises GradpoolError (EDEADLK)."""
        with self._lent(keys, gradients) as (keys, place):
            return self._start(keys, Loan(), _PushRound, lambda batch, request: lib.gp_push(
                batch, place, request))

    def export(self, path):
        """Writes keys, values and moments of all rows to a file on this host, complete or not at
        all. One rank calls this method; other ranks may train. With "bsp" all rows are of one
        clock. Pushes wait meanwhile, for at most 20 s. Timeout: other ranks have not ended the
        clocks of this rank. OSError of writing: a GradpoolError with this errno."""
        with self.job._using():
            check(lib.gp_table_export(self._handle, path_of(path)))

    def load(self, path):
        """Stores the rows of an exported file in this table, which has no rows, with the same dim,
        dtype, rule, initial and seed. One rank calls this method before the first pull and push of
        any rank; let the others wait in Job.barrier(). Mismatch: other rows. GradpoolError: EEXIST,
        the table has rows; EBADMSG, a damaged file; errors of reading."""
        with self.job._using():
            check(lib.gp_table_import(self._handle, path_of(path)))

    @contextlib.contextmanager
    def _lent(self, keys, gradients):
        """Keeps keys and gradients in memory during the call. The library does not read them
        later."""
        loan, keys = Loan(), Keys(self, keys)
        try:
            yield keys, keys.gradients_address(gradients, f"gradients of table '{self.name}'",
                                               loan)
        finally:
            loan.end()

    @contextlib.contextmanager
    def _batch(self, keys):
        """Creates a batch of the library, which sorts the keys, and frees the batch at the end.
        Calls in progress continue."""
        batch = ctypes.c_void_p()
        with self.job._using():
            check(lib.gp_batch_create(self._handle, keys.address, len(keys), ctypes.byref(batch)))
            try:
                yield batch
            finally:
                lib.gp_batch_free(batch)

    def _start(self, keys, loan, kind, begin):
        """Returns a Request for the call that `begin`(batch, address for the request) starts."""
        def call(_, request):
            with self._batch(keys) as batch:
                return check(begin(batch, request))
        return self.job._start((), loan, call, kind)

    def __reduce_ex__(self, protocol):
        raise mismatch(f'{self} cannot be copied or pickled, because its rows are on the lanes; '
                       'save what pull() returns')

    def __repr__(self):
        return f"table '{self.name}' of {self.job}"
