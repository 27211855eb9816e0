"""Trials whose workers run on nodes of Slurm (explore --engine slurm): options of their pools, and
the end of workers whose pool was killed. See svc/pool/slurm/README.md for the names of jobs."""
import os
import subprocess

_ASK_S = 30     # Slurm's commands give up after 20 s
_NAME = 80      # width of the column of names


def words_of(settings):
    """Returns the options of each pool."""
    engine = settings.get('engine')
    options = [f'--slurm={one}' for one in settings.get('slurm') or ()]
    return ['--engine', engine, *options] if engine else []


def is_used(settings):
    return settings.get('engine') == 'slurm'


def end_workers(pool):
    """Ends all jobs and steps of a pool, whose number is a text. Returns the error of Slurm; None:
    none. Processes of the pool have ended before, so no further job begins."""
    try:
        jobs = _listed(pool, '--Format', f'Name:{_NAME},JobID:40')
        steps = _listed(pool, '--steps', '--Format', f'StepName:{_NAME},StepID:40')
        if jobs:
            # The first command fails for jobs that wait, which the second one removes.
            _ask('scancel', '--quiet', '--signal=KILL', '--full', *jobs, check=False)
            _ask('scancel', '--quiet', *jobs)
        if steps:
            _ask('scancel', '--quiet', *steps)
    except (OSError, subprocess.SubprocessError) as error:
        return (getattr(error, 'stderr', None) or str(error)).strip()
    return None


def _listed(pool, *words):
    lines = _ask('squeue', '--me', '--noheader', *words).splitlines()
    return [line[_NAME:].strip() for line in lines if line.startswith(f'gradpool-{pool}-')]


def _ask(*words, check=True):
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=_ASK_S, check=check, start_new_session=True,
                          env={**os.environ, 'LC_ALL': 'C'}).stdout
