"""The display of a study: a table on a terminal, which is drawn again and again, else lines."""
import math
import os
import shutil
import time

from .engine import Ended
from .trial import (ENDED, FAILED, KILLED, OVER, PROBING, RESTING, RUNNING, smaller, text_of,
                    TRAINED, WAITING)

_DRAW_S = 0.5
_TREND = 10     # points of a trend
_BARS, _PLAIN_BARS = '▁▂▃▄▅▆▇█', '.:-=+*#@'
_COLORS = {RUNNING: '32', PROBING: '33', FAILED: '31', ENDED: '2', KILLED: '2', WAITING: '2',
           RESTING: '36'}
_ORDER = (RUNNING, PROBING, RESTING, TRAINED, ENDED, KILLED, FAILED, WAITING)
_HEADS = ('trial', 'parameters', 'state', 'workers', 'step', None, 'trend', 'feedback', 'steps/s')
_ROOM = 6       # lines of a drawing besides the trials


class Table:
    """Shows a study on `out`: begin() and end() around its events."""

    def __init__(self, out):
        self._out, self._study, self._lines, self._drawn_s = out, None, 0, 0.0
        self._is_terminal = out.isatty() and os.environ.get('TERM', 'dumb') != 'dumb'
        self._has_color = self._is_terminal and not os.environ.get('NO_COLOR')
        encoding = (out.encoding or '').lower().replace('-', '')
        self._bars = _BARS if encoding == 'utf8' else _PLAIN_BARS
        self._begun_s, self._told = time.monotonic(), set()

    # ---- lines ----

    def begin(self, study):
        self._study = study
        self._told = {one.number for one in study.trials if one.reports}
        self.say(f'{len(study.trials)} trials; results: {study.folder}')

    def say(self, text):
        """Prints a line, above the table."""
        self._erase()
        name = f'study {self._study.name}: ' if self._study is not None else ''
        print(f'{name}{text}', file=self._out, flush=True)
        self._drawn_s = 0.0

    def tell(self, event):
        """Prints a line for an event, unless the table shows the event."""
        trial = event.trial
        if self._is_terminal:
            return
        name, metric = f'trial {trial.number}', self._study.metric
        if isinstance(event, Ended):
            where = f' at step {trial.step}, {metric} {number_of(trial.value)}' \
                if trial.reports else ''
            reason = f' ({trial.reason})' if trial.reason else ''
            self.say(f'{name} {trial.state}{where}{reason}')
        elif trial.number not in self._told:
            self._told.add(trial.number)
            self.say(f'{name} reports after {trial.feedback_s:.1f} s, {metric} '
                     f'{number_of(event.value)} ({text_of(trial.parameters)})')

    # ---- the table ----

    def draw(self):
        """Draws the table, if the last time is a while ago."""
        now_s = time.monotonic()
        if self._study is None or not self._is_terminal or now_s - self._drawn_s < _DRAW_S:
            return
        self._drawn_s = now_s
        size = shutil.get_terminal_size()
        lines = self._frame(size.columns, max(3, size.lines - _ROOM - 1))
        self._erase()
        print('\n'.join(lines), file=self._out, flush=True)
        self._lines = len(lines)

    def end(self):
        """Shows the final state."""
        study = self._study
        self._erase()
        if self._is_terminal:
            size = shutil.get_terminal_size()
            print('\n'.join(self._frame(size.columns, len(study.trials))), file=self._out)
        best = study.best
        if best is not None:
            self.say(f'the best is trial {best.number} ({text_of(best.parameters)}), '
                     f'{study.metric} {number_of(best.value)} at step {best.step}')
        self.say(f'{summary(study.trials)}; results: {study.folder}')

    def _erase(self):
        if self._lines:
            print(f'\x1b[{self._lines}F\x1b[J', end='', file=self._out)
        self._lines = 0

    def _frame(self, columns, rows_max):
        study, trials = self._study, self._study.trials
        best = study.best
        rows = sorted(trials, key=lambda one: _key_of(one, study.mode))
        shown = rows[:rows_max]
        lines = [self._head(trials, columns), '']
        lines += table_of(shown, study.metric, columns, best, self._bars,
                          self._paint if self._has_color else None)
        if len(shown) < len(rows):
            lines.append(f'{len(rows) - len(shown)} more: gradpool trials')
        if best is not None:
            lines += ['', f'best: trial {best.number}, {text_of(best.parameters)}, {study.metric} '
                      f'{number_of(best.value)}'[:columns]]
        return lines

    def _head(self, trials, columns):
        over = sum(one.is_over for one in trials)
        width = max(8, min(24, columns // 5))
        full = width * over // max(1, len(trials))
        block, rest = ('█', '░') if self._bars is _BARS else ('#', '.')
        passed_s = int(time.monotonic() - self._begun_s)
        return (f'study {self._study.name}  {block * full}{rest * (width - full)}  {over}/'
                f'{len(trials)}  {passed_s // 60}:{passed_s % 60:02d}  {summary(trials)}')[:columns]

    @staticmethod
    def _paint(line, trial, is_best):
        color = '1;32' if is_best else _COLORS.get(trial.state)
        return f'\x1b[{color}m{line}\x1b[0m' if color else line


def _key_of(trial, mode):
    """Trials that train first, by number; then those that have ended, the best first."""
    value = math.inf if trial.value is None else smaller(trial.value, mode)
    is_over = trial.state in OVER
    return (_ORDER.index(trial.state), math.isnan(value) if is_over else False,
            value if is_over and not math.isnan(value) else 0, trial.number)


def summary(trials):
    """Returns '3 running, 2 waiting'."""
    counts = {state: sum(one.state == state for one in trials) for state in _ORDER}
    return ', '.join(f'{count} {state}' for state, count in counts.items() if count) or 'no trial'


def number_of(value):
    return '-' if value is None else f'{value:.4g}'


def table_of(trials, metric, columns, best, bars=_BARS, paint=None):
    """Returns the lines of a table: a head, and one line for each trial. Parameters are cut where
    the table would be wider than `columns`; None: no limit."""
    heads = [metric if name is None else name for name in _HEADS]
    rows = [_cells_of(one, best, bars) for one in trials]
    widths = [max(map(len, column)) for column in zip(heads, *rows)]
    if columns is not None:
        widths[1] = max(8, min(widths[1], columns - sum(widths) + widths[1] - 2 * len(widths) + 2))
    lines = [_line_of(heads, widths)[:columns]]
    for trial, cells in zip(trials, rows):
        line = _line_of(cells, widths)[:columns]
        lines.append(paint(line, trial, trial is best) if paint else line)
    return lines


def _cells_of(trial, best, bars):
    state = trial.state + (' *' if trial is best else '')
    feedback, speed = trial.feedback_s, trial.steps_per_s
    return (str(trial.number), text_of(trial.parameters), state,
            str(trial.workers) if trial.workers and not trial.is_over else '-',
            str(trial.step) if trial.reports else '-', number_of(trial.value),
            trend_of(trial.curve, bars), '-' if feedback is None else f'{feedback:.1f} s',
            '-' if speed is None else f'{speed:.1f}')


def _line_of(cells, widths):
    left = (1, 2, 6)
    parts = [cell[:width].ljust(width) if i in left else cell.rjust(width)
             for i, (cell, width) in enumerate(zip(cells, widths))]
    return '  '.join(parts).rstrip()


def trend_of(curve, bars=_BARS):
    """Returns the last values of a curve as bars; NaN and infinite values are marked by !."""
    values = [value for _, value in curve[-_TREND:]]
    finite = [value for value in values if math.isfinite(value)]
    low, span = (min(finite), max(finite) - min(finite)) if finite else (0, 0)
    return ''.join('!' if not math.isfinite(value) else
                   bars[int((value - low) / span * (len(bars) - 1))] if span else bars[0]
                   for value in values)
