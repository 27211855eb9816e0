"""Rules that end trials early, by their reports. A rule is pure: judge() gets the state of the rule
and a report, updates the state, and returns a verdict. A state has only dicts, lists, texts and
numbers, so JSON can store it. Imports no torch."""
import collections
import math

from ..errors import mismatch

GO_ON = 'go on'
END = 'end'     # the trial is not good enough
DONE = 'done'   # the trial has made its last step
REST = 'rest'   # the trial rests, until woken() of the rule names it
RUNG_MAX = 10 ** 9   # highest rung that a trial knows
BRACKETS_MAX = 100000   # trials until the order of Hyperband's brackets repeats

# One value of a trial: its number, its step, and the value, of which a smaller one is better. The
# steps of a trial rise.
Report = collections.namedtuple('Report', ('trial', 'step', 'value'))


def is_better(value, other):
    """Returns whether a value is better. NaN is worse than each number."""
    return value < other or (math.isnan(other) and not math.isnan(value))


def place_of(value, values):
    """Returns the place of a value among the values, from 1. Equal values share a place."""
    return 1 + sum(is_better(other, value) for other in values)


class Never:
    """Ends no trial."""

    def judge(self, state, report):
        return GO_ON, ''

    def __repr__(self):
        return 'Never()'


class ASHA:
    """Asynchronous successive halving (Li et al., MLSys 2020), which ends trials. A trial reaches
    rungs after `first`, first * eta, first * eta ** 2, ... steps, below `last`. At a rung the best
    1/eta of the trials with this rung so far go on. No trial waits for another one.

      last  a trial with so many steps is complete; None: the trial ends by itself
      rest  True: other trials of a rung rest, and go on when they are among the best 1/eta of the
            trials that have come since"""

    def __init__(self, first, eta=3, last=None, rest=False):
        self.rest = bool(rest)
        self.first, self.eta = _whole('ASHA', 'first', first, 1), _whole('ASHA', 'eta', eta, 2)
        self.last = None if last is None else _whole('ASHA', 'last', last, 1)

    def __repr__(self):
        rest = ', rest=True' if self.rest else ''
        return f'ASHA(first={self.first}, eta={self.eta}, last={self.last}{rest})'

    def rungs_of(self, trial):
        """Returns the first rungs, at which a trial rests if its study has ended."""
        rungs, rung = [], self.first
        while rung < (self.last or RUNG_MAX):
            rungs.append(rung)
            rung *= self.eta
        return rungs

    def rung_of(self, step):
        """Returns the highest rung that a trial with so many steps has reached; None: no rung."""
        rung, above = None, self.first
        while above <= step and (self.last is None or above < self.last):
            rung, above = above, above * self.eta
        return rung

    def judge(self, state, report):
        if self.last is not None and report.step >= self.last:
            return DONE, f'{report.step} steps'
        rung = self.rung_of(report.step)
        values = state.setdefault(str(rung), {}) if rung is not None else {}
        if rung is None or str(report.trial) in values:
            return GO_ON, ''
        values[str(report.trial)] = report.value
        place = place_of(report.value, values.values())
        text = f'place {place} of {len(values)} at step {rung}'
        if place <= math.ceil(len(values) / self.eta):
            return GO_ON, text
        if self.rest:
            state.setdefault('resting', {})[str(report.trial)] = str(rung)
        return (REST if self.rest else END), text

    def woken(self, state):
        """Returns the numbers of the resting trials that go on, and forgets their rests."""
        resting = state.get('resting', {})
        woken = [trial for trial, rung in resting.items()
                 if place_of(state[rung][trial], state[rung].values())
                 <= math.ceil(len(state[rung]) / self.eta)]
        for trial in woken:
            del resting[trial]
        return list(map(int, woken))


class Hyperband:
    """Hyperband (Li et al., JMLR 2018) without waits: brackets of ASHA, each of which begins at a
    later rung. The last bracket ends no trial before `last`. Brackets get about equal numbers of
    steps, so the bracket that begins first gets most trials."""

    def __init__(self, first, last, eta=3):
        first, eta = _whole('Hyperband', 'first', first, 1), _whole('Hyperband', 'eta', eta, 2)
        last = _whole('Hyperband', 'last', last, first)
        self._text = f'Hyperband(first={first}, last={last}, eta={eta})'
        starts = [first]
        while starts[-1] < last:
            starts.append(starts[-1] * eta)
        self.brackets = [ASHA(start, eta, last) for start in starts]
        self._order = _order_of_brackets(len(starts), eta)

    def __repr__(self):
        return self._text

    def bracket_of(self, trial):
        return self._order[(trial - 1) % len(self._order)]

    def rungs_of(self, trial):
        return self.brackets[self.bracket_of(trial)].rungs_of(trial)

    def judge(self, state, report):
        number = self.bracket_of(report.trial)
        verdict, text = self.brackets[number].judge(state.setdefault(str(number), {}), report)
        return verdict, f'{text}, bracket {number + 1}' if text and verdict != DONE else text


class Median:
    """The median rule of Google Vizier (KDD 2017). At each multiple of `every` steps, from `first`
    steps on, a trial ends if its best value is worse than the median of the other trials' means up
    to there. `least`: other trials that the rule waits for."""

    def __init__(self, first, every=None, least=3):
        self.first = _whole('Median', 'first', first, 1)
        self.every = _whole('Median', 'every', every or first, 1)
        self.least = _whole('Median', 'least', least, 1)

    def __repr__(self):
        return f'Median(first={self.first}, every={self.every}, least={self.least})'

    def rungs_of(self, trial):
        first = -(-self.first // self.every) * self.every
        return [first + self.every * i for i in range(64)]

    def judge(self, state, report):
        own = state.setdefault('trials', {}).setdefault(
            str(report.trial), {'count': 0, 'sum': 0.0, 'best': math.nan})
        own['count'] += 1
        own['sum'] += report.value
        if is_better(report.value, own['best']):
            own['best'] = report.value
        point = report.step // self.every * self.every
        means = state.setdefault('means', {}).setdefault(str(point), {})
        if report.step < self.first or point == 0 or str(report.trial) in means:
            return GO_ON, ''
        others = sorted(means.values(), key=lambda value: (math.isnan(value), value))
        means[str(report.trial)] = own['sum'] / own['count']
        if len(others) < self.least:
            return GO_ON, ''
        median = others[len(others) // 2]   # of two in the middle, the worse one
        text = f'best {own["best"]:.4g}, median {median:.4g} of {len(others)} at step {point}'
        return (END if is_better(median, own['best']) else GO_ON), text


def _whole(rule, name, value, least):
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise mismatch(f'{rule}({name}={value!r}), expected a whole number of {least} or more; '
                       f'change {name}')
    return value


def _order_of_brackets(count, eta):
    """Returns the bracket of each trial, until the order repeats. Bracket i begins i rungs late."""
    numbers = [math.ceil(count / (halvings + 1) * eta ** halvings)
               for halvings in reversed(range(count))]
    if sum(numbers) > BRACKETS_MAX:
        raise mismatch(f'Hyperband() with {count} rungs of eta={eta} needs {sum(numbers)} trials, '
                       f'expected at most {BRACKETS_MAX}; raise first, or lower last')
    given, order = [0] * count, []
    for _ in range(sum(numbers)):
        number = min(range(count), key=lambda i: (given[i] + 1) / numbers[i])
        given[number] += 1
        order.append(number)
    return order
