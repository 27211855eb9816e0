"""The pools of a study: starts and ends them, and lets their trials rest."""
import os
import select
import signal
import time

from ..errors import GradpoolError
from . import pool as pools, rests, slurm, store as stores
from .ending import end_workers, held
from .trial import RUNNING, smaller, WAITING
from .worker import PARAMETERS

_QUEUE_S = 1        # longest wait in a turn until the service has queued a job
_REST_S = 30        # time after which a wish to rest is repeated
_END_S = 2          # longest wait in a turn until Slurm has ended workers
_ANNOUNCED_MAX = 768    # limit of `gradpool run --announce`
RESTING_MAX = 64    # trials that may sleep at once, without --resting-max


class Fleet:
    """The pools by the numbers of their trials.

      folder_of  function that returns the folder of a trial
      settings   those of study.db: name, command, workers, cwd, rest, mode; resting_max: trials
                 that may sleep at once (the workers of further ones end in their rests)
      options    endpoint, site, program; ahead: trials that may have a pool at once;
                 starter: starts the process of a pool
      rungs_of   function that returns the steps at which the rule judges a trial
      say        function that gets a line for the user"""

    def __init__(self, folder_of, settings, options, rungs_of, say):
        self._folder_of, self._settings, self._options = folder_of, settings, options
        self._rungs_of, self._say = rungs_of, say
        self._pools, self._signalled, self._wished_s = {}, set(), {}
        self._standings = {}    # number of a trial -> rungs in its written standing
        self._is_stuck, self._is_full = False, False
        self._most = settings.get('resting_max', RESTING_MAX)
        self._marks = {}        # of the checkpoints at which pools began
        self._sleepers = set()  # numbers of trials that sleep in memory, or are to do so
        self._endings, self._unended = {}, set()    # of workers, by the numbers of trials

    def __len__(self):
        return len(self._pools)

    def get(self, trial):
        """Returns the pool of a trial; None: none."""
        return self._pools.get(trial.number)

    def find(self, trial):
        """Takes over the pool of an earlier process of the study. Returns None if there is none."""
        found = pools.Pool.find(self._folder_of(trial))
        if found is not None:
            self._pools[trial.number] = found
            self._note_wish(trial)
        return found

    def drop(self, trial):
        """Called when the pool of the trial has ended."""
        self._pools.pop(trial.number).close()
        self._signalled.discard(trial.number)
        self._sleepers.discard(trial.number)
        self._wished_s.pop(trial.number, None)

    def close(self):
        """Leaves all pools, which go on."""
        while self._pools:
            self._pools.popitem()[1].close()

    def wait(self, seconds):
        """Waits until a pool ends, or for this time."""
        poll = select.poll()
        for one in self._pools.values():
            poll.register(one.fd, select.POLLIN)
        poll.poll(seconds * 1000)

    def signal_all(self):
        """Asks all pools to end. A second time gives their workers less time."""
        for one in self._pools.values():
            one.signal(signal.SIGINT)

    def has_rested(self, trial):
        """Returns whether the workers and the pool of the trial have ended for a rest. A pool that
        was killed meanwhile has stored no exit code: a new pool then learns the end."""
        folder = self._folder_of(trial)
        return rests.has_rested(folder) and self.get(trial) is None and pools.code_of(folder) == 0

    def has_idled(self, trial):
        """Returns whether the workers of the last pool have ended before their first step after a
        rest: their script has ended early. Such a trial would begin again without an end."""
        mark = rests.mark(self._folder_of(trial))
        return mark is not None and mark == self._marks.get(trial.number)

    def end_workers(self, trial):
        """Ends the workers of a trial whose pool was killed. Returns False while Slurm has not
        ended them, and a later call continues. The trial has no new pool in the meantime."""
        folder, number = self._folder_of(trial), trial.number
        if not self.is_ending(trial):
            if not os.path.isdir(folder):
                return True
            end_workers(folder)
            pool = pools.number_of(folder)
            if not pool or not slurm.is_used(self._settings):
                return True
            self._endings[number] = slurm.Ending(pool)
        elif self._endings[number].is_due_again():
            self._endings[number] = slurm.Ending(self._endings[number].pool)
        is_alone = len(self._endings) == 1      # others may wait for a Slurm that does not answer
        if not self._endings[number].is_over(_END_S if is_alone else 0):
            return False
        if self._endings[number].error is None:
            self._unended.discard(number)
            del self._endings[number]
            return True
        self._tell_unended(number)
        return False

    def is_ending(self, trial):
        """Returns whether end_workers() has to be called again."""
        return trial.number in self._endings

    def _tell_unended(self, number):
        ending = self._endings[number]
        if number not in self._unended:
            error = ending.error if ending.is_over() else 'Slurm does not answer'
            self._say(f'trial {number}: its workers were not ended: {error}; the study tries '
                      f'again, or end the jobs gradpool-{ending.pool}-* of Slurm with scancel')
        self._unended.add(number)

    def await_endings(self, until_s):
        """Waits until Slurm has ended the workers of all trials whose pools were killed."""
        for number, ending in self._endings.items():
            if not ending.is_over(max(0, until_s - time.monotonic())) or ending.error is not None:
                self._tell_unended(number)

    # ---- acts of a turn ----

    def act(self, trials):
        """Ends trials with a verdict, and lets others rest, go on or start. Returns the trials that
        were started."""
        started = []
        for trial in trials:
            pool = self.get(trial)
            if pool is None:
                continue
            if trial.verdict and trial.number not in self._signalled:
                pool.signal(signal.SIGTERM)
                self._signalled.add(trial.number)
            elif not trial.verdict:
                self._stand(trial, pool)
                self._rest(trial, pool)
        due = [one for one in trials if self._needs_pool(one)]
        is_ready = self._options['starter'].is_ready()
        due = due[:max(0, self._options['ahead'] - self._count_awake(trials)) if is_ready else 0]
        for place, trial in enumerate(due, 1):
            if not self._try_start(trial, len(due) - place):
                break
            started.append(trial)
            if not self._pools[trial.number].await_queued(_QUEUE_S):
                break       # a slow service: the next turn continues
        return started

    def _count_awake(self, trials):
        """Returns the number of pools whose trials do not rest. For each other pool, one more trial
        may start."""
        return len(self._pools) - sum(bool(one.rests and self.get(one)) for one in trials)

    def _needs_pool(self, trial):
        """Returns whether the trial has no pool, and needs one. The workers of a trial that rests
        sleep on without their pool, and a new pool adopts them."""
        must_wait = trial.rests and (trial.state == WAITING or self.has_rested(trial))
        has_workers = self.get(trial) is not None or self.is_ending(trial)
        return not has_workers and not trial.verdict and not must_wait

    def _try_start(self, trial, followers):
        """Returns False if the folder of the trial cannot be written. The next turn tries again."""
        try:
            self._start(trial, followers)
        except (OSError, GradpoolError) as error:
            text = error.strerror if isinstance(error, OSError) else error
            if not self._is_stuck:
                self._say(f'trial {trial.number} was not started: {self._folder_of(trial)}: '
                          f'{text}; until then trials train on, and none is started')
            self._is_stuck = True
            return False
        if self._is_stuck:
            self._say('trials are started again')
        self._is_stuck = False
        return True

    def _start(self, trial, followers):
        """Starts the pool of a trial. The pool announces the trials that follow at once, so that no
        trial takes their slots first."""
        folder, options, settings = self._folder_of(trial), self._options, self._settings
        pools.make_folder(folder)
        stores.write_json(folder, PARAMETERS, trial.parameters)
        stores.write_json(folder, rests.RUNGS, self._rungs_of(trial.number))
        if rests.is_wished(folder) != bool(trial.rests):    # otherwise the text stays
            self._wish(trial, bool(trial.rests))
        self._note_wish(trial)
        self._marks[trial.number] = rests.mark(folder)
        least, most = settings['workers']
        command = [options['program'], 'run', '--job', f'{settings["name"]}/{trial.number}',
                   '--study', settings['name'], '--site', options['site'],
                   '--endpoint', options['endpoint'], '--folder', folder,
                   '--announce', str(min(followers, _ANNOUNCED_MAX)),
                   *(['--rest'] if settings.get('rest') else []),
                   '--workers', str(least), '--workers-max', str(most),
                   *slurm.words_of(settings), *options['starter'].words,
                   *pools.filled(trial.number, settings['command'], trial.parameters)]
        with held():
            self._pools[trial.number] = options['starter'].start(
                folder, command, settings['cwd'],
                {**pools.environment_of(folder), **({} if self._most else {rests.EXIT: '1'})})

    def _stand(self, trial, pool):
        """Passes the standing of a trial to its pool, when the trial has reached a rung: the
        service lets the trial with the lowest rung rest first, then the one with the worst report
        there. The file stays for the next pool."""
        rung = sum(one <= trial.step for one in self._rungs_of(trial.number))
        if rung == self._standings.get(trial.number, 0) or not pool.is_queued():
            return
        try:
            rests.write_standing(self._folder_of(trial), rung,
                                 smaller(trial.value, self._settings['mode']))
        except OSError:
            return      # a full disk: the next turn tries again
        self._standings[trial.number] = rung
        pool.signal(signal.SIGUSR2)

    def _wish(self, trial, rests_now):
        """Stores the wish of a trial. If as many trials as allowed sleep, its workers end in place
        of a sleep."""
        must_end = len(self._sleepers - {trial.number}) >= self._most
        rests.wish(self._folder_of(trial), rests_now, must_end)
        if rests_now and must_end and self._most > 0 and not self._is_full:
            self._say(f'trial {trial.number} rests without processes, and so do further ones: '
                      f'{self._most} trials sleep in memory; --resting-max allows more')
            self._is_full = True

    def _note_wish(self, trial):
        folder = self._folder_of(trial)
        sleeps = rests.is_wished(folder) and not rests.ends_processes(folder)
        (self._sleepers.add if sleeps else self._sleepers.discard)(trial.number)

    def _rest(self, trial, pool):
        """Passes the wish of a trial to rest, or to go on, to its pool. A trial that probes has no
        step before which it could rest."""
        folder, is_wished = self._folder_of(trial), bool(trial.rests)
        is_new = rests.is_wished(folder) != is_wished
        if not pool.is_queued() or (is_wished and trial.state not in (RUNNING, WAITING)):
            return
        now_s = time.monotonic()
        is_late = (pool.rests() != is_wished
                   and now_s - self._wished_s.get(trial.number, 0) > _REST_S)
        if not is_new and not (is_wished and is_late):
            return
        try:
            if is_new:
                self._wish(trial, is_wished)
                self._note_wish(trial)
        except OSError:
            return      # a full disk: the next turn tries again
        self._wished_s[trial.number] = now_s
        pool.signal(signal.SIGUSR1)
