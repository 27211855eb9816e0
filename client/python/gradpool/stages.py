"""Stages: parts of a job, each with its own number of working ranks. Made by Job.stages().
STAGES.md is the guide."""
import collections
import ctypes

from ._native.binding import check, CONSISTENCIES, encode, INT_MAX, lib, number, U32_MAX, U64_MAX
from ._native.memory import Loan
from ._native.stages import Carry, GOALS, IDLE, StageNow, StageSpec, VISITS
from .errors import mismatch

DAY_MS = 24 * 3600 * 1000

# A step of a stage: its number in the stage from 0, the first unit and the number of units of all
# members, and the slice of this rank.
Step = collections.namedtuple('Step', ('number', 'first', 'count', 'mine'))


def run(job, plan, repeat=1, timeout_ms=0, idle_timeout_ms=DAY_MS):
    """Job.stages(): yields a Stage for each entry of `plan`, `repeat` times over, on every rank
    of the job. Every rank runs the same plan. After the last stage all ranks work again.

      plan             a list of dicts:
        name             of the stage; stages of one name share their choice of workers
        workers          number of ranks that work; "auto": chosen by trials
        workers_min      least number of ranks that work; the job must have at least this number
        workers_max      largest number of ranks that work in an automatic stage
        goal             of "auto": "fastest" (least time), or "frugal" (least product of time and
                         ranks)
        visit            "stay": the lowest ranks work; "travel": the ranks that have worked in the
                         fewest stages work
        consistency      of tables without their own: "bsp", "ssp:2" or "asp"
        carry            a list of arrays that new ranks get from the lowest rank of the last stage
      timeout_ms       longest wait for the other ranks at a border; 0: GRADPOOL_TIMEOUT_MS
      idle_timeout_ms  longest wait of an idle rank for the end of a stage

    Mismatch: a wrong entry, or ranks run different plans. Timeout: the text names the late ranks.
    PeerLost: a rank was lost, or has left inside a stage."""
    entries = [_Entry(entry) for entry in plan]
    border = _Border(job, number(timeout_ms, 'timeout_ms', INT_MAX),
                     number(idle_timeout_ms, 'idle_timeout_ms', INT_MAX))
    for _ in range(number(repeat, 'repeat', U32_MAX)):
        for entry in entries:
            stage = Stage(border, entry)
            yield stage
            stage._finish()
    border.next(None)


class _Entry:
    """A checked entry of a plan."""

    def __init__(self, entry):
        values = dict(entry)
        self.name = values.pop('name', '')
        what = f"stage '{self.name}'"
        workers = values.pop('workers', 'auto')
        self._spec = StageSpec(
            name=encode(self.name, 'the name of a stage'),
            workers=0 if workers == 'auto' else _positive(workers, f'workers of {what}'),
            workers_min=number(values.pop('workers_min', 0), f'workers_min of {what}', U32_MAX),
            workers_max=number(values.pop('workers_max', 0), f'workers_max of {what}', U32_MAX),
            goal=_one_of(values.pop('goal', 'fastest'), GOALS, f'goal of {what}'),
            visit=_one_of(values.pop('visit', 'stay'), VISITS, f'visit of {what}'))
        self._spec.consistency, self._spec.staleness = _consistency(
            values.pop('consistency', 'bsp'), f'consistency of {what}')
        self._carry = values.pop('carry', ())
        if values:
            raise mismatch(f"{what} has no parameter '{min(values)}'; its parameters are in "
                           'STAGES.md')

    def lend(self, loan):
        """Returns the struct of the entry. Arrays to hand over are lent until the end of `loan`."""
        items = (Carry * len(self._carry))()
        for place, (item, array) in enumerate(zip(items, self._carry)):
            what = f"item {place} of carry of stage '{self.name}'"
            elements, dtype, item.bytes = _shape(array, what)
            item.values = loan.address(array, elements, what, dtype)
        self._spec.carry, self._spec.carry_count = items, len(items)
        return self._spec


def _positive(value, what):
    if value == 0:
        raise mismatch(f'{what} is 0; choose 1 at least, or "auto"')
    return number(value, what, U32_MAX)


def _one_of(value, allowed, what):
    if value not in allowed:
        raise mismatch(f"{what} is {value!r}; choose one of {', '.join(allowed)}")
    return allowed[value]


def _consistency(value, what):
    word, colon, staleness = str(value).partition(':')
    is_number = staleness.isascii() and staleness.isdigit() and int(staleness) <= U32_MAX
    if word not in CONSISTENCIES or (word == 'ssp') != bool(colon) or bool(colon) != is_number:
        raise mismatch(f'{what} is {value!r}; choose "bsp", "asp", or "ssp:N"')
    return CONSISTENCIES[word], int(staleness or 0)


def _shape(array, what):
    """Returns (number of elements, name of the dtype, bytes) of a torch tensor or numpy array."""
    try:
        name = str(array.dtype).rpartition('.')[2]
        elements = array.numel() if hasattr(array, 'numel') else array.size
        size = array.element_size() if hasattr(array, 'element_size') else array.itemsize
    except AttributeError:
        raise mismatch(f'{what} is a {type(array).__name__}, expected an array') from None
    return elements, name, elements * size


class _Border:
    """The calls of a rank at the borders of its stages."""

    def __init__(self, job, timeout_ms, idle_timeout_ms):
        self.job, self._timeout_ms, self._idle_timeout_ms = job, timeout_ms, idle_timeout_ms

    def next(self, entry):
        """Begins a stage. Returns a StageNow."""
        loan, now = Loan(), StageNow()
        try:
            spec = ctypes.byref(entry.lend(loan)) if entry else None
            self.job._wait(lib.gp_stage_next, spec, self._timeout_ms, ctypes.byref(now))
        finally:
            loan.end()
        return now

    def step(self, units):
        """Returns True if a trial is over."""
        with self.job._using() as handle:
            return check(lib.gp_stage_step(handle, units)) == 1

    def end(self, is_idle):
        """Ends this rank's part. Returns True if the stage continues with other ranks."""
        timeout_ms = self._idle_timeout_ms if is_idle else self._timeout_ms
        return self.job._wait(lib.gp_stage_end, timeout_ms) == 1


class Stage:
    """One stage at this rank.

      name, number      number from 1, over all stages of the job
      workers           number of ranks that work
      place             number of working ranks below this rank; None: this rank is idle"""

    def __init__(self, border, entry):
        self._border, self._entry, self.name = border, entry, entry.name
        self._has_ended = False
        self._begin()

    def _begin(self):
        now = self._border.next(self._entry)
        self.number, self.workers, self._cursor = now.number, now.workers, now.cursor
        self.place = None if now.place == IDLE else now.place

    def steps(self, units, batch):
        """Yields a Step for each `batch` of the `units` of the stage; on an idle rank none. Each
        step ends when the loop asks for the next one. An automatic stage changes its ranks between
        two steps."""
        units, batch = number(units, 'units', U64_MAX), number(batch, 'batch', U64_MAX)
        if batch == 0:
            raise mismatch(f"batch of stage '{self.name}' is 0; choose 1 at least")
        while not self._has_ended:
            if self.place is not None:
                yield from self._steps_until_pause(units, batch)
            self._pass_border()

    def _steps_until_pause(self, units, batch):
        first, is_paused = self._cursor, False
        while first < units and not is_paused:
            count = min(batch, units - first)
            yield Step(first // batch, first, count, self._share(first, count))
            is_paused = self._border.step(count)
            first += count

    def _share(self, first, count):
        return slice(first + count * self.place // self.workers,
                     first + count * (self.place + 1) // self.workers)

    def _pass_border(self):
        if self._border.end(is_idle=self.place is None):
            self._begin()
        else:
            self._has_ended = True

    def _finish(self):
        """Ends the stage, unless the loop over steps() has ended the stage. Raises Mismatch if the
        stage continues with other ranks, because the script's loop is over."""
        if self._has_ended:
            return
        self._pass_border()
        if not self._has_ended:
            raise mismatch(f"stage '{self.name}' is automatic and has units left, but the loop "
                           'over stage.steps() has ended; complete the loop on every rank')

    def __repr__(self):
        place = 'idle' if self.place is None else f'place {self.place}'
        return f"stage '{self.name}' of {self._border.job}, {place} of {self.workers} workers"
