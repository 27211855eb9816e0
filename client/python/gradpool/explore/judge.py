"""Enters the reports of trials, and asks the rule of the study for verdicts."""
from .reading import read
from .rules import DONE, END, Report, REST
from .trial import smaller


class Judge:
    """Reads reports of trials.

      settings  of the study: metric, mode; rule_state, of an earlier process
      say       function that gets a line for the user
      state     of the rule
      woken     numbers of trials whose rest the rule has ended, since the caller has emptied it"""

    def __init__(self, rule, settings, say):
        self._rule, self._metric, self._mode = rule, settings['metric'], settings['mode']
        self.state, self._say, self.woken = settings['rule_state'], say, []

    def read(self, trial, folder):
        """Enters the new reports of a trial, in its folder. Returns ([(step, value), ...], whether
        the trial has changed)."""
        reports, bad, offset = read(folder, trial.offset)
        if offset == trial.offset:
            return [], False
        trial.offset, trial.skipped = offset, trial.skipped + bad
        taken = [(step, values[self._metric]) for step, workers, time_s, values in reports
                 if self._take(trial, step, workers, time_s, values)]
        return taken, True

    def _take(self, trial, step, workers, time_s, values):
        """Enters a report. Returns False if the report has no effect."""
        value = values.get(self._metric)
        if value is None:
            trial.skipped += 1
            self._name_missing(trial, values)
            return False
        if not trial.take(step, value, workers, time_s):
            return False
        self._ask(trial)
        return True

    def _name_missing(self, trial, values):
        """Explains the first report without the metric."""
        if trial.reports == 0 and trial.skipped == 1:
            self._say(f"trial {trial.number} has reported {', '.join(values) or 'nothing'}, and "
                      f"the metric of the study is '{self._metric}'; report this value, or change "
                      'metric=')

    def _ask(self, trial):
        """Asks the rule about the last report. A verdict stays."""
        if trial.verdict:
            return
        value = smaller(trial.value, self._mode)
        verdict, reason = self._rule.judge(self.state, Report(trial.number, trial.step, value))
        trial.reason = reason or trial.reason
        if verdict in (END, DONE):
            trial.verdict = verdict
        elif verdict == REST:
            trial.rests = trial.rests or 'rule'
        if hasattr(self._rule, 'woken'):
            self.woken += self._rule.woken(self.state)

    def rungs_of(self, trial):
        """Returns the steps at which the rule judges a trial."""
        return self._rule.rungs_of(trial) if hasattr(self._rule, 'rungs_of') else []
