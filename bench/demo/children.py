"""Child processes of the demo: their JSON lines, logs, deadlines and ends.

Every child runs in a separate session, so Ctrl-C reaches only the demo. When the demo ends, even by
a crash, its children are killed. Grandchildren whose parent has ended become children of the demo.
"""
import ctypes
import json
import os
import pathlib
import selectors
import signal
import subprocess
import time

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LOG_LINES = 15

_libc = ctypes.CDLL(None, use_errno=True)


def cpu_s(pids):
    """Returns the CPU seconds, user and system, of these processes. An ended process counts as
    0."""
    ticks = 0
    for pid in pids:
        try:
            with open(f'/proc/{pid}/stat', encoding='ascii') as file:
                fields = file.read().rpartition(')')[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf('SC_CLK_TCK')


def children_of(pid):
    """Returns the process ids of the children of a process; none if the process has ended."""
    try:
        return list(map(int, pathlib.Path(f'/proc/{pid}/task/{pid}/children').read_text().split()))
    except (FileNotFoundError, ProcessLookupError):
        return []


class Failed(Exception):
    """The demo cannot continue. The text has the reason and the last lines of a log."""


class Interrupted(Exception):
    """A signal requests the end of the demo."""


class Child:
    """A running process. `events`: all JSON lines that it has printed."""

    def __init__(self, name, process, log):
        self.name, self.process, self.log = name, process, log
        self.events = []
        self._rest = b''

    def last(self, event):
        """Returns the latest event with that name, or None."""
        return next((e for e in reversed(self.events) if e['event'] == event), None)

    def tail(self):
        """Returns the last lines of the child's log."""
        lines = self.log.read_text(errors='replace').splitlines()[-LOG_LINES:]
        return ''.join(f'\n    {line}' for line in lines) or '\n    (its log is empty)'

    def read(self):
        """Reads output of the child. Returns False at the end of the output."""
        data = os.read(self.process.stdout.fileno(), 65536)
        *lines, self._rest = (self._rest + data).split(b'\n')
        for line in lines:
            try:
                self.events.append(dict(json.loads(line)))
            except (ValueError, TypeError):
                raise Failed(f'{self.name} printed {line[:80]!r}, expected JSON') from None
        return bool(data)

    def tell(self, line):
        self.process.stdin.write(line.encode() + b'\n')
        self.process.stdin.flush()


def _surroundings():
    """Returns the environment without variables of gradpool, so that only the settings of the demo
    apply."""
    return {name: value for name, value in os.environ.items()
            if not name.startswith('GRADPOOL_') or name == 'GRADPOOL_LOG_LEVEL'}


def _die_with_parent():
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Patience:
    """A time limit that is extended while one of `children`, or a process started by a child,
    prints output or uses CPU time. The limit is extended up to ten times `seconds`."""
    MOST_TIMES = 10

    def __init__(self, seconds, children):
        self._seconds, self._children = seconds, children
        self._begun_s = self._grown_s = time.monotonic()
        self._signs = self._look()

    def _look(self):
        running = [c.process.pid for c in self._children if c.process.poll() is None]
        running += [pid for parent in running for pid in children_of(parent)]
        return sum(len(c.events) for c in self._children), cpu_s(running)

    def is_over(self, now_s):
        signs = self._look()
        if signs != self._signs:
            self._signs, self._grown_s = signs, now_s
        return (now_s - self._grown_s > self._seconds or
                now_s - self._begun_s > self.MOST_TIMES * self._seconds)


class Children:
    """All children of the demo. During a wait `on_wait(now_s)` is called at least ten times a
    second."""

    def __init__(self, folder, on_wait):
        self._folder = pathlib.Path(folder)
        self._on_wait = on_wait
        self._selector = selectors.DefaultSelector()
        self._all = []
        self._is_interrupted = False
        _libc.prctl(PR_SET_CHILD_SUBREAPER, 1)

    def start(self, name, argv, environment=None):
        """Starts a child. The log of the child receives its standard error."""
        log = self._folder / f'{name}.log'
        with open(log, 'ab') as errors:
            process = subprocess.Popen(
                [str(word) for word in argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=errors, env={**_surroundings(), **(environment or {})},
                start_new_session=True, preexec_fn=_die_with_parent)
        child = Child(name, process, log)
        self._all.append(child)
        self._selector.register(process.stdout, selectors.EVENT_READ, child)
        return child

    def interrupt(self, *_):
        """Signal handler: ends the present wait, or the next one. Raises no exception, because
        Python ignores exceptions in some places."""
        self._is_interrupted = True

    def wait(self, what, is_done, needed, timeout_s, watched=None):
        """Waits until is_done(). Raises Failed if `needed` made no progress for `timeout_s`, if one
        of these children failed, or if all `needed` children ended. `watched`: children whose
        progress is checked in place of `needed`. Raises Interrupted after a signal."""
        patience = Patience(timeout_s, needed if watched is None else watched)
        while not is_done():
            now_s = time.monotonic()
            if patience.is_over(now_s):
                raise Failed(f'{what}: no progress for {timeout_s} s' +
                             ''.join(f'\n  {child.name}:{child.tail()}' for child in needed))
            self._read(0.1)
            if self._is_interrupted:
                raise Interrupted
            self._on_wait(now_s)
            self._check_alive(what, is_done, needed)

    def _check_alive(self, what, is_done, needed):
        ended = [child for child in needed if child.process.poll() is not None]
        for child in ended:
            self._drain(child)
        bad = [child for child in ended if child.process.returncode != 0 or ended == needed]
        if bad and not is_done():
            raise Failed(f'{what}: ' + ''.join(
                f'\n  {child.name} ended with {child.process.returncode}:{child.tail()}'
                for child in bad))

    def wait_ended(self, children, timeout_s):
        """Waits until all `children` have ended and all their output is read."""
        self.wait(' and '.join(child.name for child in children) + ' end',
                  lambda: all(child.process.poll() is not None for child in children), [],
                  timeout_s, children)
        for child in children:
            self._drain(child)

    def _read(self, timeout_s):
        for key, _ in self._selector.select(timeout_s):
            if not key.data.read():
                self._selector.unregister(key.fileobj)

    def _drain(self, child):
        while child.process.stdout in self._selector.get_map():
            if not child.read():
                self._selector.unregister(child.process.stdout)

    def orphans(self):
        """Returns the process ids of running grandchildren whose parent has ended."""
        ours = {child.process.pid for child in self._all}
        return [pid for pid in children_of(os.getpid()) if pid not in ours]

    def kill_all(self):
        """Kills every started process by its id, and waits for its end."""
        for child in self._all:
            if child.process.poll() is None:
                child.process.kill()
            child.process.wait()
        while orphans := self.orphans():
            for pid in orphans:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
