"""Rests of a trial whose processes end: the checkpoint in the folder of the trial. A worker that
starts in this folder later begins at the sample and with the state of the checkpoint.

A rest has two rounds of sums of the tensor of the state. In the first one the giver sends the wish
of the study, and the number of ranks shows that none was lost since the last step, whose samples
would else be missing. In the second one the giver sends whether the checkpoint is stored. Only then
do the workers end; otherwise they sleep.

The file `rested` is a checkpoint from which no worker has trained yet. The first worker that trains
renames the file to `checkpoint`, which serves if all workers are lost later. So the process of the
study knows a trial that has rested from one that has ended."""
import contextlib
import errno
import os
import struct
import sys
import zlib

import torch

from ..errors import GradpoolError
from ..explore import rests, worker as trial
from .state import WORDS

_MAGIC, _VERSION = b'gpRESTED', 1
# _MAGIC, version, first step, words of the cursor, bytes of the state, and the CRC-32 of the file
# with 0 in place of the CRC-32
_HEAD = struct.Struct('<8sQQQQQ')
_SLEEP, _END, _STORED, _FAILED = range(4)


def _crc(*parts):
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    return crc


class Checkpoint:
    """A checkpoint: the number of its first step, the cursor of the deal (a list of numbers), and
    the bytes of the state."""

    def __init__(self, first, cursor, state):
        self.first, self.cursor, self.state = first, cursor, state

    def write(self, folder):
        """Stores the checkpoint as the file `rested`: all or nothing, also after a power failure.
        Raises OSError."""
        path = os.path.join(folder, rests.RESTED)
        with open(path + '.new', 'wb') as file:
            file.write(self._head(_crc(self._head(0), self._words(), self.state)))
            file.write(self._words())
            file.write(self.state)
            file.flush()
            os.fsync(file.fileno())
        os.replace(path + '.new', path)
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(held)
        finally:
            os.close(held)

    def _head(self, crc):
        return _HEAD.pack(_MAGIC, _VERSION, self.first, len(self.cursor), self.state.nbytes, crc)

    def _words(self):
        return struct.pack(f'<{len(self.cursor)}Q', *self.cursor)

    @classmethod
    def read(cls, folder):
        """Returns the newest checkpoint of the folder; None: there is none. Raises GradpoolError
        for a damaged file."""
        for name in rests.RESTED, rests.CHECKPOINT:     # in this order: see take()
            path = os.path.join(folder, name)
            try:
                with open(path, 'rb') as file:
                    return cls._parse(path, file.read())
            except FileNotFoundError:
                continue
            except OSError as error:
                raise GradpoolError(error.errno or errno.EIO, f'{path} cannot be read: '
                                    f'{error.strerror}; the trial needs this file') from None
        return None

    @classmethod
    def _parse(cls, path, data):
        if len(data) >= _HEAD.size:
            magic, version, first, words, size, crc = _HEAD.unpack_from(data)
            begin = _HEAD.size + 8 * words
            if (magic, version) == (_MAGIC, _VERSION) and begin + size == len(data):
                cursor = struct.unpack_from(f'<{words}Q', data, _HEAD.size)
                found = cls(first, cursor, memoryview(data)[begin:])
                if crc == _crc(found._head(0), found._words(), found.state):
                    return found
        raise GradpoolError(errno.EBADMSG, f'{path} is damaged, or has another version; remove the '
                            'file, and the trial begins anew')


class Resting:
    """The rests of this worker's trial. Without a trial nothing is done.

      checkpoint  at which this worker begins; None: at the beginning of the training
      has_ended   the training ends here, and goes on in other processes"""

    def __init__(self, job, tensor, timeout_ms):
        self._job, self._tensor, self._timeout_ms = job, tensor, timeout_ms
        self._folder = os.environ.get(trial.VARIABLE)
        self.checkpoint = Checkpoint.read(self._folder) if self._folder else None
        self.has_ended = False

    def begin(self, deal):
        """Lets the deal begin at the checkpoint."""
        if self._folder:
            deal.rests(self.checkpoint.cursor if self.checkpoint else ())

    @property
    def first(self):
        """The number of this job's first step."""
        return self.checkpoint.first if self.checkpoint else 1

    def take(self):
        """Called by one worker when all workers have read the checkpoint, before its first step
        and at the end of the training."""
        if self.checkpoint and not self.has_ended:
            with contextlib.suppress(FileNotFoundError):
                os.replace(*(os.path.join(self._folder, name)
                             for name in (rests.RESTED, rests.CHECKPOINT)))

    def decide(self, deal, save):
        """Called by all workers when the job is to rest. Returns whether the workers end.

          save  function that returns the state as a file"""
        step = deal.step
        first, workers, is_giver = step.number, step.workers, step.giver == self._job.rank
        wish = _END if is_giver and rests.ends_processes(self._folder) else _SLEEP
        count, wish = self._sum(wish)
        if count != workers or wish != _END:
            return False
        stored = self._store(first, deal, save) if is_giver else _SLEEP
        self.has_ended = self._sum(stored)[1] == _STORED
        if not self.has_ended:
            # the giver may have been lost after it had stored the file
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self._folder, rests.RESTED))
        return self.has_ended

    def _store(self, first, deal, save):
        try:
            Checkpoint(first, deal.cursor(), save().getbuffer()).write(self._folder)
        except OSError as error:
            print(f'gradpool: {self._job}: its state was not written to {self._folder}: '
                  f'{error.strerror}; its workers sleep instead, and keep their memory',
                  file=sys.stderr, flush=True)
            return _FAILED
        return _STORED

    def _sum(self, value):
        """Returns the number of workers, and the value of the giver."""
        words = torch.zeros(WORDS, dtype=torch.int64)
        words[0], words[1] = 1, value
        self._job.push_pull(self._tensor, words, operation='sum').wait(self._timeout_ms)
        return words[0].item(), words[1].item()
