"""The engine of a study: starts pools, reads reports, asks the rule, and ends trials. Each turn
first changes the trials in memory, then stores them, and acts last. So a process of the study that
is killed at any point leaves a database from which the next one continues."""
import collections
import errno
import math
import os
import signal
import time

from ..errors import GradpoolError
from . import pool as pools, rests, store as stores
from .fleet import Fleet
from .judge import Judge
from .rules import DONE, END
from .trial import (check_parameters, ENDED, FAILED, KILLED, PROBING, RESTING, RUNNING, Trial,
                    TRAINED, WAITING)

FAILURES_MAX = 3    # trials in a row that may fail without a report
_KILLS_MAX = 3      # pools of a trial that may be killed from outside
_COPY_S = 2         # least time between two writes of trials.csv and trials.json
_INTERRUPT_S = 25   # a pool gives its workers 15 s

# Events of a study. `trial`: a Trial.
Report = collections.namedtuple('Report', ('trial', 'step', 'value'))
Ended = collections.namedtuple('Ended', ('trial',))


class Stopped(GradpoolError):
    """The study cannot continue."""


class Engine:
    """Runs the trials of a store.

      settings  those of study.db: name, command, workers, metric, mode, cwd
      options   of the Fleet
      rule, searcher, trials_max  of the Study
      say       function that gets a line for the user"""

    def __init__(self, folder, store, rule, searcher, trials_max, options, say):
        self.folder, self.store, self.settings = folder, store, store.settings
        self.trials, self.say, self._options = store.trials(), say, options
        self._judge = Judge(rule, store.settings, say)
        self._searcher, self._trials_max = searcher, trials_max
        self._is_exhausted, self._asked = False, None
        self._fleet = Fleet(self.folder_of, store.settings, options, self._judge.rungs_of, say)
        self._kills = collections.Counter()
        self._dirty, self._orders, self._is_broken = set(), [], False
        self._failed_in_row, self._copied_s = 0, 0.0
        for trial in self.trials:
            self._find(trial)
        if searcher is not None and self.trials:
            searcher.restore(list(self.trials))
            for trial in self.trials:
                trial.is_told = trial.is_over

    # ---- trials ----

    @property
    def has_searcher(self):
        return self._searcher is not None

    @property
    def has_processes(self):
        return len(self._fleet) > 0

    def folder_of(self, trial):
        return os.path.join(self.folder, f'{trial.number:04d}')

    def submit(self, parameters):
        """Adds a trial to the queue. The trial is stored before the call returns."""
        number = len(self.trials) + 1
        check_parameters(number, parameters)
        pools.filled(number, self.settings['command'], parameters)
        trial = Trial(number, parameters, submitted_s=time.time())
        self.store.write([trial], {}, [])
        self.trials.append(trial)
        return trial

    def is_over(self):
        """Returns whether all trials have ended, no other one comes, and all ends are stored."""
        return (self._is_exhausted and not self._dirty
                and all(one.is_over for one in self.trials))

    def _open(self):
        return [one for one in self.trials if not one.is_over]

    def _find(self, trial):
        """Continues with a trial of an earlier process of the study."""
        folder = self.folder_of(trial)
        if trial.is_over or not os.path.isdir(folder):
            return
        if self._fleet.find(trial) is not None:
            return
        code = pools.code_of(folder)
        if code is not None and not _is_signal(code):   # the pool has ended by itself
            self._read(trial)
            self._finish(trial, code)
        elif trial.verdict:
            self._end_without_pool(trial)
        else:
            self._set(trial, state=WAITING)

    # ---- a turn ----

    def turn(self):
        """Makes one turn. Returns its events, which are stored. Raises Stopped."""
        events = []
        self._take_orders()
        for trial in self._open():
            events += self._look_at(trial)
        self._end_rests()
        self._tell()
        self._ask()     # after the ends, which may be all that the searcher waits for
        if self._write():
            self._act()
            self._copy(is_running=True)
            self._check_failures()
        return events

    def wait(self, seconds):
        """Waits until a pool ends, or for this time."""
        self._fleet.wait(seconds)

    def _take_orders(self):
        try:
            orders = self.store.orders()
        except stores.Failure:
            return      # the write of this turn reports the failure
        for identifier, number in orders.items():
            if 1 <= number <= len(self.trials):
                self.trials[number - 1].kill()
                self._dirty.add(number)
        self._orders = list(orders)

    def _ask(self):
        """Gets trials from the searcher while slots may be free."""
        if self._searcher is None:
            self._is_exhausted = True
            return
        while self._count_awake() < self._options['ahead'] and not self._is_broken:
            if self._asked is None and len(self.trials) < (self._trials_max or math.inf):
                self._asked = self._searcher.ask()
            self._is_exhausted = self._asked is None
            if self._is_exhausted:
                return
            try:
                self.submit(self._asked)
            except stores.Failure as error:
                return self._break(error)
            self._asked = None

    def _count_awake(self):
        return sum(not one.rests for one in self._open())

    def _tell(self):
        """Passes the ends of trials to the searcher."""
        for trial in self.trials:
            if trial.is_over and not trial.is_told:
                if self._searcher is not None:
                    self._searcher.tell(trial.number, trial.value, trial.state)
                trial.is_told = True
                self._dirty.add(trial.number)

    def _look_at(self, trial):
        events, pool = [], self._fleet.get(trial)
        if pool is not None:
            code = pool.code()      # before the reports, which the workers wrote before their end
            events = self._read(trial)
            if trial.state == WAITING and pool.has_started():
                self._set(trial, state=PROBING)
            if pool.rests() != (trial.state == RESTING):
                self._look_at_rest(trial)
            if code is not None:
                self._fleet.drop(trial)
                self._finish(trial, code)
        elif trial.verdict:
            self._end_without_pool(trial)
        elif trial.state == RESTING and not trial.rests and self._fleet.has_rested(trial):
            self._set(trial, state=WAITING)
        elif self._fleet.is_ending(trial):
            self._finish(trial, -signal.SIGKILL)
        if trial.is_over:
            events.append(Ended(trial))
        return events

    def _look_at_rest(self, trial):
        if trial.state == RUNNING:
            self._set(trial, state=RESTING)
        elif trial.state == RESTING:
            self._set(trial, state=RUNNING)

    def _end_rests(self):
        """Ends the rests that the rule has ended. Trials that rest by the rule end when no other
        trial is left, whose report could wake them."""
        for number in self._judge.woken:
            if self.trials[number - 1].rests == 'rule':
                self.trials[number - 1].go_on()
                self._dirty.add(number)
        self._judge.woken = []
        still = self._open()
        if self._is_exhausted and all(one.rests == 'rule' for one in still):
            for trial in still:
                trial.verdict = trial.verdict or END
                self._dirty.add(trial.number)

    def _set(self, trial, **values):
        for name, value in values.items():
            setattr(trial, name, value)
        self._dirty.add(trial.number)

    def _read(self, trial):
        """Enters new reports. Returns their events."""
        found, has_changed = self._judge.read(trial, self.folder_of(trial))
        if has_changed:
            self._dirty.add(trial.number)
        if found:
            self._failed_in_row = 0
        return [Report(trial, step, value) for step, value in found]

    # ---- ends ----

    def _finish(self, trial, code):
        """Enters the end of a pool. A pool that was killed is started again, and adopts the
        workers, unless the trial is over."""
        is_over = trial.verdict or self._kills[trial.number] >= _KILLS_MAX
        if code < 0 and is_over and not self._fleet.end_workers(trial):
            return      # the next turn continues
        if code == 0 and not trial.verdict and rests.has_rested(self.folder_of(trial)):
            if not self._fleet.has_idled(trial):
                return self._set(trial, state=RESTING if trial.rests else WAITING)
            state = FAILED
            trial.reason = ('the script has ended with 0 after a rest, before its first step; '
                            'train with Run whenever the script begins')
        elif code == 0 or trial.verdict == DONE:
            state = TRAINED
        elif trial.verdict:
            state = ENDED if trial.verdict == END else KILLED
        elif code < 0 and self._kills[trial.number] < _KILLS_MAX:
            self._kills[trial.number] += 1
            return
        else:
            state = KILLED if _is_signal(code) else FAILED
            trial.reason = (f'exit code {code}: ' + pools.reason_of(self.folder_of(trial)))[:300]
        self._set(trial, state=state, ended_s=time.time())
        if state != FAILED:
            rests.forget(self.folder_of(trial))
        if state == FAILED and trial.reports == 0:
            self._failed_in_row += 1
        elif state == TRAINED:
            self._failed_in_row = 0

    def _end_without_pool(self, trial):
        """Ends a trial that waits, or whose pool was killed."""
        if self._fleet.end_workers(trial):
            self._finish(trial, 128 + signal.SIGTERM)

    def _check_failures(self):
        if self._failed_in_row < FAILURES_MAX:
            return
        last = next(one for one in reversed(self.trials) if one.state == FAILED)
        raise Stopped(errno.ECANCELED, f'{self._failed_in_row} trials in a row have failed without '
                      f'a report, the last one with: {last.reason}; see '
                      f'{self.folder_of(last)}/rank-0.log, mend the command, and begin in a new '
                      'folder')

    # ---- the store, and acts ----

    def _write(self):
        """Stores all changes. Returns False if this was not possible: no process is started or
        ended before the changes are stored."""
        if not self._dirty and not self._orders and not self._is_broken:
            return True
        changed = [self.trials[number - 1] for number in sorted(self._dirty)]
        try:
            self.store.write(changed, {'rule_state': self._judge.state}, self._orders)
        except stores.Failure as error:
            self._break(error)
            return False
        if self._is_broken:
            self.say(f'{self.store.path} can be written again')
        self._dirty, self._orders, self._is_broken = set(), [], False
        return True

    def _break(self, error):
        if not self._is_broken:
            self.say(f'{error}; until then trials train on, and none is started or ended')
        self._is_broken = True

    def _act(self):
        for trial in self._fleet.act(self._open()):
            self._set(trial, begun_s=trial.begun_s or time.time())

    def _copy(self, is_running):
        """Writes trials.csv and trials.json, if the last time is a while ago."""
        now_s = time.monotonic()
        if is_running and now_s - self._copied_s < _COPY_S:
            return
        self._copied_s = now_s
        try:
            stores.write_copies(self.folder, self.settings, self.trials, is_running)
        except OSError as error:
            if not is_running:
                self.say(f'{self.folder}/trials.json was not written: {error.strerror}; free space')

    # ---- the end ----

    def interrupt(self):
        """Ends all pools. Their trials wait again, for the next process of the study."""
        until_s = time.monotonic() + _INTERRUPT_S
        self.signal_all()
        while self.has_processes and time.monotonic() < until_s:
            self.wait(1)
            self._collect()
        self._fleet.await_endings(until_s)
        self._tell()
        self._write()

    def signal_all(self):
        self._fleet.signal_all()

    def _collect(self):
        for trial in self._open():
            pool = self._fleet.get(trial)
            code = pool.code() if pool is not None else None
            if code is None:
                continue
            self._read(trial)
            self._fleet.drop(trial)
            if trial.verdict or not _is_signal(code) and code >= 0:
                self._finish(trial, code)
            else:
                if code < 0:
                    self._fleet.end_workers(trial)
                self._set(trial, state=WAITING)

    def close(self):
        self._options['starter'].close()
        self._copy(is_running=False)
        self.store.close()


def _is_signal(code):
    """Returns whether a user has ended the pool by a signal."""
    return code - 128 in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
