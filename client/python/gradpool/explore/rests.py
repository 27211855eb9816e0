"""Rests of trials. A file `rest` in the folder of a trial is the wish that the trial rests; its
pool reads the file after SIGUSR1. A trial whose study has ended rests at its next rung. The file
`standing` has the rung and the report of the trial, which order the rests of a site."""
import contextlib
import json
import os
import signal

from . import locks

WISH, STANDING, RUNGS = 'rest', 'standing', 'rungs.json'


def is_wished(folder):
    return os.path.exists(os.path.join(folder, WISH))


def wish(folder, rests):
    """Stores whether the trial is to rest. The caller then signals the pool."""
    path = os.path.join(folder, WISH)
    if rests:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def write_standing(folder, rung, value):
    """Stores the standing of the trial for its pool, which reads the file after SIGUSR2.

      rung   number of rungs that the trial has reached
      value  report at this rung, of which a smaller one is better"""
    path = os.path.join(folder, STANDING)
    with open(path + '.new', 'w', encoding='utf-8') as file:
        file.write(f'{rung} {value!r}\n')
    os.replace(path + '.new', path)


class Watch:
    """Lets the trial of this process rest at a rung that no study judges.

      folder  of the trial"""

    def __init__(self, folder):
        self._folder, self._step = folder, 0
        try:
            with open(os.path.join(folder, RUNGS), encoding='utf-8') as file:
                self._rungs = json.load(file)
        except (OSError, ValueError):
            self._rungs = []

    def reach(self, step):
        """Called after the report of a step."""
        before, self._step = self._step, step
        is_rung = any(before < rung <= step for rung in self._rungs)
        if not is_rung or locks.is_locked(os.path.dirname(self._folder)):
            return
        wish(self._folder, True)
        pool = locks.holder_of(os.path.join(self._folder, 'lock'))
        if pool is not None:    # otherwise the next pool reads the file
            with contextlib.suppress(OSError):
                os.kill(pool, signal.SIGUSR1)
