"""A trial's side of a study: the parameters, and reports. A report is one line of JSON at the end
of a file in the folder of the trial. The study reads the file, also after its own restart. Without
a study nothing is written. Imports no torch."""
import contextlib
import json
import os
import sys
import time

from ..errors import mismatch
from .rests import Watch

VARIABLE = '_GRADPOOL_TRIAL'    # the folder of the trial; no user sets it
REPORTS, PARAMETERS = 'reports', 'parameters.json'


class _Reporter:
    """The file of reports of this process's trial.

      step  of the last report without a step of its own"""

    def __init__(self):
        self.step, self._file, self._is_torn, self._has_failed = 0, None, False, False
        self._watch = None

    def write(self, step, workers, values):
        """Appends a report. A failed write loses the report, and the training continues."""
        folder = os.environ.get(VARIABLE)
        if not folder:
            return
        line = json.dumps({'step': step, 'workers': workers, 'time': round(time.time(), 3),
                           'values': values})
        try:
            self._append(folder, ('\n' if self._is_torn else '') + line + '\n')
        except OSError as error:
            self._is_torn = True
            if not self._has_failed:
                print(f'gradpool: the report of step {step} was not written to {folder}/{REPORTS}: '
                      f'{error.strerror}; free space, or end the trial', file=sys.stderr)
            self._has_failed = True
        self._watch = self._watch or Watch(folder)
        with contextlib.suppress(OSError):      # a full disk: the trial trains on
            self._watch.reach(step)

    def _append(self, folder, text):
        if self._file is None:
            self._file = os.open(os.path.join(folder, REPORTS),
                                 os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        data = text.encode()
        self._is_torn = os.write(self._file, data) < len(data)


_reporter = _Reporter()


def parameters():
    """Returns the parameters of this process's trial; without a study, an empty dict."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        return {}
    with open(os.path.join(folder, PARAMETERS), encoding='utf-8') as file:
        return json.load(file)


def report(step=None, **values):
    """Reports values of a script without gradpool.elastic.Run, such as its loss.

      step  rises from report to report; None: one more than in the last report of this process

    Of several workers, rank 0 reports. Without a study nothing is written."""
    if step is None:
        step = _reporter.step + 1
    if isinstance(step, bool) or not isinstance(step, int) or step < 0:
        raise mismatch(f'report() of step {step!r}, expected a whole number from 0; give the '
                       'number of the step')
    numbers = {name: _number_of(name, value) for name, value in values.items()}
    if not numbers:
        raise mismatch('report() without a value; say report(loss=loss)')
    _reporter.step = step
    if os.environ.get('GRADPOOL_RANK', '0') == '0':
        _reporter.write(step, int(os.environ.get('GRADPOOL_SIZE') or 1), numbers)


def write(step, workers, values):
    """Writes the report of a step of gradpool.elastic.Run."""
    _reporter.write(step, workers, values)


def _number_of(name, value):
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        raise mismatch(f"report() of '{name}' with {type(value).__name__}, expected one number; "
                       'report a mean') from None
