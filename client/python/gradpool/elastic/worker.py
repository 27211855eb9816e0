"""One rank of the runner: its process, and the link to its Run. Imports no torch."""
import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time

from . import control

KILL_S = 5              # time between the request to end and SIGKILL
PAUSE_MAX_S = 60        # longest pause before a new process
STEADY_S = 120  # a process that has run for this time, in seconds, ends a series of failures
FAILURES_MAX = 3        # number of processes of a rank that may end before their first step
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


class Worker:
    """A rank of the job. `process` is None before its start, between two processes, and after the
    last one.

      trains     its Run has begun a step
      founds     the first step of the job waits for this process
      leaves     its rank was removed while it trained
      ending     `ending` of its Run; None: not known
      due_s      time at which a new process starts; None: no start is due
      limit_s    time at which `process` is ended; None: there is no limit"""

    def __init__(self, rank):
        self.rank, self.process, self.trains, self.ending = rank, None, False, None
        self.due_s, self.limit_s, self.start_s = time.monotonic(), None, None
        self._start_limit_s = None
        self.founds = self.leaves = False
        # number of failures before the first step; number of failures in the present series
        self.failures = self.deaths = 0
        self.link = self.pidfd = self.is_ended_by = None
        self.is_silent = False      # the worker has closed its end of the link

    def start(self, command, environment, start_s, place):
        """Starts a process, and sends its place in the job. The process is killed with the runner,
        and leads a session of its own: a Ctrl-C in the terminal reaches the runner alone."""
        self.link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.link.setblocking(False)
        self.link.send(json.dumps({'rank': self.rank, **place}).encode())
        runner = os.getpid()
        with theirs:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, start_new_session=True,
                pass_fds=[theirs.fileno()], preexec_fn=lambda: _end_with(runner),
                env={**os.environ, **environment, 'RANK': str(self.rank),
                     'LOCAL_RANK': str(self.rank), control.VARIABLE: str(theirs.fileno())})
        self.pidfd = os.pidfd_open(self.process.pid)
        self.trains, self.ending, self.due_s, self.is_ended_by = False, None, None, None
        self.is_silent, self.leaves, self.start_s = False, False, time.monotonic()
        self._start_limit_s = self.start_s + start_s if start_s else None
        self.limit_s = self._start_limit_s

    def leave(self, leave_s):
        """Called when the rank was removed. The Run leaves the job by itself, within `leave_s`."""
        if not self.leaves:
            self.leaves, self.limit_s = True, time.monotonic() + leave_s

    def stay(self):
        """Called when the rank belongs to the job. No effect while the process is being ended."""
        if self.is_ended_by is None:
            self.leaves, self.limit_s = False, None if self.trains else self._start_limit_s

    def messages(self):
        """Yields the messages that have arrived."""
        with contextlib.suppress(OSError):
            while data := self.link.recv(control.MESSAGE_BYTES):
                yield json.loads(data)
            self.is_silent = True

    def resize(self, workers):
        """Requests another number of workers. Returns False if the worker has ended."""
        try:
            self.link.send(json.dumps({'resize': workers}).encode())
        except OSError:
            return False
        return True

    def end(self, number):
        """Requests the end of the process; SIGKILL follows after KILL_S."""
        self.is_ended_by = number
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        self.limit_s = time.monotonic() + KILL_S

    def kill(self):
        """Ends the process and all processes that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def reap(self):
        """Called when the process has ended. Returns its exit status, negative for a signal."""
        self.kill()     # before wait(), after which another process group may get the number
        status = self.process.wait()
        os.close(self.pidfd)
        self.link.close()
        self.process = self.link = self.pidfd = self.limit_s = None
        return status

    def fail(self):
        """Returns the pause in seconds until the next process. None: no further process is started,
        because too many processes have ended before their first step."""
        now_s = time.monotonic()
        self.failures = 0 if self.trains else self.failures + 1
        self.deaths = 1 if now_s - self.start_s > STEADY_S else self.deaths + 1
        if self.failures >= FAILURES_MAX:
            return None
        pause_s = min(2 ** (self.deaths - 1), PAUSE_MAX_S)
        self.due_s = now_s + pause_s
        return pause_s

    def next_s(self):
        """Returns the time of the next start, or of the limit of the process; None: no time is
        set."""
        return self.due_s if self.process is None else self.limit_s


def _end_with(runner):
    """Makes the process end with the runner. Runs in the child before its program."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != runner:
        os._exit(1)


def text_of(status):
    """Returns words for an exit status: 'ended with exit code 1'."""
    if status >= 0:
        return f'ended with exit code {status}'
    return f'was ended by signal {-status} ({signal.strsignal(-status)})'


def command_of(script, arguments):
    return [sys.executable, script, *arguments]
