"""Rests of trials. A file `rest` in the folder of a trial is the wish that the trial rests; its
pool reads the file after SIGUSR1. The file's text says whether the workers sleep or end. A trial
whose study has ended rests at its next rung. The file `standing` has the rung and the report of the
trial, which order the rests of a site."""
import contextlib
import json
import os
import signal

from . import locks

WISH, STANDING, RUNGS = 'rest', 'standing', 'rungs.json'
# Checkpoints of a trial whose workers have ended for a rest (gradpool.elastic.resting): before and
# after workers have begun from the file.
RESTED, CHECKPOINT = 'rested', 'checkpoint'
EXIT = '_GRADPOOL_REST_EXIT'    # set: workers end in each rest; no user sets it
_END = 'end\n'      # text of the wish that workers end in place of a sleep


def is_wished(folder):
    return os.path.exists(os.path.join(folder, WISH))


def ends_processes(folder):
    """Returns whether the trial is to rest, and its workers end in place of a sleep."""
    try:
        with open(os.path.join(folder, WISH), encoding='utf-8') as file:
            return file.read() == _END
    except OSError:
        return False


def wish(folder, rests, ends=False):
    """Stores whether the trial is to rest. The caller then signals the pool.

      ends  the workers end in place of a sleep"""
    path = os.path.join(folder, WISH)
    if rests:
        with open(path + '.new', 'w', encoding='utf-8') as file:
            file.write(_END if ends else '')
        os.replace(path + '.new', path)
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


def has_rested(folder):
    """Returns whether the workers of the trial have ended for a rest, and no worker has begun
    since."""
    return os.path.exists(os.path.join(folder, RESTED))


def mark(folder):
    """Returns a value that differs for each stored checkpoint; None: no worker has rested since."""
    try:
        found = os.stat(os.path.join(folder, RESTED))
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def forget(folder):
    """Removes the checkpoints of a trial that has ended."""
    for name in RESTED, CHECKPOINT:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, name))


def awaits(pid, number):
    """Returns whether a process blocks or catches a signal. A pool of an earlier version, or one
    that has just begun, would be ended by the signal."""
    try:
        with open(f'/proc/{pid}/status', encoding='utf-8') as status:
            masks = [int(line.split()[1], 16) for line in status
                     if line.startswith(('SigBlk:', 'SigCgt:'))]
    except OSError:
        return False
    return any(mask >> (number - 1) & 1 for mask in masks)


def send(pid, number):
    """Sends a signal to a pool that expects the signal."""
    with contextlib.suppress(OSError):
        handle = os.pidfd_open(pid)     # first: the number may become that of another process
        try:
            if awaits(pid, number):
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


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
        wish(self._folder, True, EXIT in os.environ)
        pool = locks.holder_of(os.path.join(self._folder, 'lock'))
        if pool is not None:    # otherwise the next pool reads the file
            send(pool, signal.SIGUSR1)
