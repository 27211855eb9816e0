"""The pool of a trial: a process `gradpool run` in the folder of the trial, which starts the
workers. The pool survives the process of the study, and stores its exit code in its folder. So the
next process of the study finds the pool by the lock of the folder, or learns how the pool has
ended."""
import errno
import os
import re
import signal
import subprocess
import time

from ..errors import GradpoolError, mismatch
from . import worker
from .locks import holder_of
from .rests import awaits

_NAME = re.compile(r'\{([A-Za-z_]\w*)\}')
_LOG_BYTES = 4096   # end of a log that is searched for its last line
LOG, LOCK = 'pool.log', 'lock'
# The pool prints these words when the service has queued its job (svc/pool/pool.c).
_QUEUED = b'starts its workers when slots are free'
# The same for the last change of a rest (svc/pool/orders.c).
_RESTS, _GOES_ON = b' rests: its workers sleep', b' goes on after its rest'
_LOOK_S = 0.01


class Pool:
    """A running pool, or one that has ended.

      fd  readable when the process has ended"""

    def __init__(self, folder, pid, child=None):
        self.folder, self._pid, self._child = folder, pid, child
        self.fd = os.pidfd_open(pid)
        self._code, self._log_bytes, self._output_begin = None, 0, 0
        self._is_queued, self._rests, self._rest_size = False, False, 0

    @classmethod
    def start(cls, folder, command, cwd, environment, begin=None):
        """Starts the process. Output of the pool, such as refusals, is appended to its log.

          begin  starts a process that is no child of this one; None: a child"""
        log_bytes = _bytes_of_rank(folder)
        with open(os.path.join(folder, LOG), 'ab') as log:
            output_begin = os.stat(log.fileno()).st_size
            child = (begin or _begin)(command, log, cwd, environment)
        started = cls(folder, child.pid, child)
        started._log_bytes, started._output_begin = log_bytes, output_begin
        return started

    @classmethod
    def find(cls, folder):
        """Returns the running pool of the folder, started by an earlier process of the study; None:
        there is none."""
        pid = holder_of(os.path.join(folder, LOCK))
        if pid is None:
            return None
        try:
            found = cls(folder, pid)
        except OSError:
            return None
        if holder_of(os.path.join(folder, LOCK)) == pid:
            return found    # otherwise the number may be that of another process
        found.close()
        return None

    def code(self):
        """Returns the exit code, negative for a signal; None: the pool runs. A pool of an earlier
        process of the study that has stored no code was killed: -9."""
        if self._code is None and self._child is not None:
            self._code = self._child.poll()
        elif self._code is None and _has_ended(self.fd):
            self._code = code_of(self.folder)
            self._code = -signal.SIGKILL if self._code is None else self._code
        return self._code

    def has_started(self):
        """Returns whether the pool has started a worker."""
        return _bytes_of_rank(self.folder) > self._log_bytes

    def await_queued(self, limit_s):
        """Waits until the service has queued the job, so that jobs stand in the queue in the order
        of their pools. Returns False at the limit."""
        until_s = time.monotonic() + limit_s
        while not (_has_ended(self.fd) or _QUEUED in self._output()):
            if time.monotonic() > until_s:
                return False
            time.sleep(_LOOK_S)
        return True

    def is_queued(self):
        """Returns whether the service has queued the job. The pool then handles SIGUSR1."""
        self._is_queued = self._is_queued or _QUEUED in self._output()
        return self._is_queued

    def rests(self):
        """Returns whether the job rests."""
        size = os.stat(os.path.join(self.folder, LOG)).st_size
        if size != self._rest_size:
            output = self._output()
            self._rests, self._rest_size = output.rfind(_RESTS) > output.rfind(_GOES_ON), size
        return self._rests

    def _output(self):
        with open(os.path.join(self.folder, LOG), 'rb') as log:
            log.seek(self._output_begin)
            return log.read()

    def signal(self, number):
        """Sends a signal. Drops SIGUSR1 and SIGUSR2 to a process that would be ended by the signal:
        a pool of an earlier version, or one that has just begun. The pool reads the files of its
        folder when it begins."""
        if number in (signal.SIGUSR1, signal.SIGUSR2) and not awaits(self._pid, number):
            return
        try:
            signal.pidfd_send_signal(self.fd, number)
        except ProcessLookupError:
            pass

    def close(self):
        os.close(self.fd)


def _begin(command, log, cwd, environment):
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=cwd,
                            start_new_session=True, env=environment)


def _has_ended(pidfd):
    try:
        signal.pidfd_send_signal(pidfd, 0)
    except ProcessLookupError:
        return True
    return False


def code_of(folder):
    """Returns the exit code that the last pool of the folder has stored; None: no pool has ended
    there by itself."""
    found = _state_of(folder, 'result')
    return None if found is None else int(found)


def number_of(folder):
    """Returns the number of the folder's pool, which the names of its workers have; None: no pool
    has begun there."""
    return _state_of(folder, 'pool')


def _state_of(folder, name):
    """Returns the last value of this name in the state of the folder; None: none."""
    try:
        with open(os.path.join(folder, 'state'), encoding='utf-8', errors='replace') as file:
            found = [line.split()[1] for line in file if line.startswith(f'{name} ')]
    except OSError:
        return None
    return found[-1] if found else None


def _bytes_of_rank(folder):
    """Returns the length of the first worker's log; each start of a worker adds a line."""
    try:
        return os.stat(os.path.join(folder, 'rank-0.log')).st_size
    except OSError:
        return 0


def reason_of(folder):
    """Returns words for the failure of a trial: the last line of a worker, or else of the pool."""
    names = [name for name in os.listdir(folder) if re.fullmatch(r'rank-\d+\.log', name)]
    paths = sorted((os.path.join(folder, name) for name in names),
                   key=lambda path: os.stat(path).st_mtime, reverse=True)
    lines = [line for path in paths if not (line := _last_line(path)).startswith('gradpool run:')]
    return next(filter(None, [*lines, _last_line(os.path.join(folder, LOG))]), '')


def _last_line(path):
    try:
        with open(path, 'rb') as log:
            log.seek(max(0, os.stat(log.fileno()).st_size - _LOG_BYTES))
            lines = log.read().decode(errors='replace').split('\n')
    except OSError:
        return ''
    return next((line.strip() for line in reversed(lines) if line.strip()), '')


def filled(number, command, parameters):
    """Returns the command with the value of each parameter in place of its name in braces."""
    def value_of(match):
        if match[1] not in parameters:
            raise mismatch(f'trial {number}: the command has {match[0]}, and the parameters are '
                           f'{", ".join(parameters) or "none"}; name one of them')
        return str(parameters[match[1]])
    return [_NAME.sub(value_of, word) for word in command]


def environment_of(folder):
    """Returns the environment of a trial's pool, which its workers inherit."""
    kept = {name: value for name, value in os.environ.items()
            if name not in ('GRADPOOL_JOB', 'GRADPOOL_RANK', 'GRADPOOL_SIZE')}
    return {'OMP_NUM_THREADS': '1', 'PYTHONUNBUFFERED': '1', **kept, worker.VARIABLE: folder}


def check_command(command):
    """Raises Mismatch for a command that no pool can start."""
    if (isinstance(command, str) or not command
            or not all(isinstance(word, str) and '\0' not in word for word in command)):
        raise mismatch(f'command {command!r}, expected a list of texts such as '
                       "['python3', 'train.py']")
    if command[0].startswith('-'):
        raise mismatch(f"command '{command[0]}' is an option, expected a program; give its path")


def make_folder(path):
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
    except OSError as error:
        raise GradpoolError(error.errno or errno.EIO, f'folder {path} cannot be made: '
                            f'{error.strerror}; name another one') from None
