"""A trial of a study: one configuration, which trains as one job."""
import dataclasses
import math

from ..errors import mismatch
from .rules import is_better

WAITING, PROBING, RUNNING, RESTING = 'waiting', 'probing', 'running', 'resting'
TRAINED, ENDED, KILLED, FAILED = 'trained', 'ended', 'killed', 'failed'
OVER = (TRAINED, ENDED, KILLED, FAILED)
_CURVE_MAX = 32     # points of the curve; from there on each second one is dropped
_PLAIN = (str, int, float, bool, type(None))


@dataclasses.dataclass(eq=False)
class Trial:
    """One row of study.db.

      state     waiting (no process), probing (no report yet), running, resting (its workers
                sleep, without slots); trained, ended (by the rule), killed, failed
      rests     'user' or 'rule': who wants the trial to rest; '': nobody
      value     the last value of the metric; None: no report has one
      step, workers  of the last report
      skipped   reports that had no effect: their step did not rise, they had no value of the
                metric, or they were no reports
      verdict   'end', 'done' or 'kill' once the trial is to end; '': none
      reason    words for the verdict or the end
      curve     [step, value] of some reports
      times     seconds since 1970; None: not yet"""
    number: int
    parameters: dict
    state: str = WAITING
    value: float = None
    step: int = 0
    workers: int = 0
    reports: int = 0
    skipped: int = 0
    verdict: str = ''
    reason: str = ''
    curve: list = dataclasses.field(default_factory=list)
    submitted_s: float = None
    begun_s: float = None       # its first process was started
    reported_s: float = None    # its first report
    reported_step: int = 0
    last_s: float = None        # its last report
    ended_s: float = None
    offset: int = 0             # bytes of its reports that were read
    is_told: bool = False       # the searcher knows the end
    rests: str = ''

    @property
    def is_over(self):
        return self.state in OVER

    def kill(self):
        """Ends the trial. No effect on one that has ended, or is about to end."""
        if not self.is_over and not self.verdict:
            self.verdict, self.reason = 'kill', self.reason or 'killed'

    def rest(self):
        """Lets the trial rest before its next step, until go_on(): its workers sleep, without
        slots. The script has a gradpool.elastic.Run."""
        if not self.is_over:
            self.rests = 'user'

    def go_on(self):
        """Ends the rest of the trial. Its workers wait for free slots."""
        self.rests = ''

    @property
    def feedback_s(self):
        """Seconds from submit() to the first report; None: there is none."""
        return None if self.reported_s is None else self.reported_s - self.submitted_s

    @property
    def steps_per_s(self):
        """Steps a second since the first report; None: not known."""
        if self.reported_s is None or self.last_s <= self.reported_s:
            return None
        return (self.step - self.reported_step) / (self.last_s - self.reported_s)

    def take(self, step, value, workers, time_s):
        """Enters a report. Returns False if its step does not rise."""
        if step <= self.step and self.reports > 0:
            self.skipped += 1
            return False
        if self.reported_s is None:
            self.reported_s, self.reported_step = max(time_s, self.submitted_s), step
        self.step, self.value, self.workers, self.last_s = step, value, workers, time_s
        self.reports += 1
        self.state = RUNNING
        self.curve.append([step, value])
        if len(self.curve) > _CURVE_MAX:
            self.curve = self.curve[::2]
        return True


def best_of(trials, mode):
    """Returns the trial with the best last value, the first one of equal ones; None: no trial has a
    value. A trial whose value is NaN is never the best."""
    best = None
    for one in trials:
        if one.value is None or math.isnan(one.value):
            continue
        if best is None or is_better(smaller(one.value, mode), smaller(best.value, mode)):
            best = one
    return best


def smaller(value, mode):
    """Returns a value of which the smaller one is better."""
    return -value if mode == 'max' else value


def check_parameters(number, parameters):
    """Raises Mismatch for parameters that JSON does not give back."""
    if not isinstance(parameters, dict):
        raise mismatch(f'trial {number}: parameters are {parameters!r}, expected a dict such as '
                       "{'lr': 0.1}")
    _check_value(number, 'parameters', parameters)


def _check_value(number, name, value):
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        for key, one in value.items():
            _check_value(number, key, one)
    elif isinstance(value, list):
        for one in value:
            _check_value(number, name, one)
    elif type(value) not in _PLAIN:
        raise mismatch(f'trial {number}: parameter {name!r} is {value!r} '
                       f'({type(value).__name__}), expected a number, a text, True, False, None, '
                       'or a list or dict of these; convert the value, as in float(lr)')


def text_of(parameters):
    """Returns 'lr=0.1 width=32'."""
    return ' '.join(f'{name}={_short(value)}' for name, value in parameters.items())


def _short(value):
    return f'{value:.4g}' if isinstance(value, float) else str(value)
