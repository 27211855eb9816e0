"""Trials whose workers run on nodes of Slurm (explore --engine slurm): options of their pools, and
the end of workers whose pool was killed. See svc/pool/slurm/README.md for the names of jobs."""
import os
import subprocess
import threading
import time

from ..errors import mismatch

_ASK_S = 30     # Slurm's commands give up after 20 s
_AGAIN_S = 10   # between two tries to end workers
_NAME = 80      # width of the column of names


def words_of(settings):
    """Returns the options of each pool."""
    engine = settings.get('engine')
    options = [f'--slurm={one}' for one in settings.get('slurm') or ()]
    return ['--engine', engine, *options] if engine else []


def is_used(settings):
    return settings.get('engine') == 'slurm'


def check_way(settings, pools):
    """Raises a Mismatch if workers of these pools live, and new pools could not adopt them, because
    workers of this process are jobs and those are steps of an allocation, or the reverse."""
    is_inside = 'SLURM_JOB_ID' in os.environ
    if not is_used(settings) or not pools:
        return
    try:
        found = [one for pool in sorted(pools) for one in (_jobs if is_inside else _steps)(pool)]
    except (OSError, subprocess.SubprocessError) as error:
        raise mismatch(f'study {settings["name"]}: squeue does not show its workers: '
                       f'{_text(error)}; resume the study when Slurm answers') from None
    if found:
        raise mismatch(f'study {settings["name"]}: job {found[0]} of Slurm is a worker of a trial, '
                       f'and runs {"outside of" if is_inside else "inside"} an allocation; resume '
                       'the study there, or end the worker with scancel')


class Ending:
    """Ends the workers of a pool in a thread, because each command of Slurm may take 30 s.

      error  of Slurm, when is_over(); None: none"""

    def __init__(self, pool):
        self.pool, self.error, self._begun_s = pool, None, time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        self.error = end_workers(self.pool)

    def is_over(self, seconds=0):
        """Waits for this time. Returns whether the commands have ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def is_due_again(self):
        is_late = time.monotonic() > self._begun_s + _AGAIN_S
        return self.is_over() and self.error is not None and is_late


def end_workers(pool):
    """Ends all jobs and steps of a pool, whose number is a text. Returns the error of Slurm; None:
    none. Processes of the pool have ended before, so no further job begins."""
    try:
        jobs, steps = _jobs(pool), _steps(pool)
        if jobs:
            # The first command fails for jobs that wait, which the second one removes.
            _ask('scancel', '--quiet', '--signal=KILL', '--full', *jobs, check=False)
            _ask('scancel', '--quiet', *jobs)
        if steps:
            _ask('scancel', '--quiet', *steps)
    except (OSError, subprocess.SubprocessError) as error:
        return _text(error)
    return None


def _text(error):
    return str(getattr(error, 'stderr', None) or error).strip()


def _jobs(pool):
    return _listed(pool, '--Format', f'Name:{_NAME},JobID:40')


def _steps(pool):
    return _listed(pool, '--steps', '--Format', f'StepName:{_NAME},StepID:40')


def _listed(pool, *words):
    lines = _ask('squeue', '--me', '--noheader', *words).splitlines()
    return [line[_NAME:].strip() for line in lines if line.startswith(f'gradpool-{pool}-')]


def _ask(*words, check=True):
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=_ASK_S, check=check, start_new_session=True,
                          env={**os.environ, 'LC_ALL': 'C'}).stdout
