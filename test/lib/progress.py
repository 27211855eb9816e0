"""Measures the progress of processes from /proc, to distinguish slow processes from hanging ones.

A process makes progress while one of its threads runs, waits for a core or waits for a disk. So a
slow process counts as busy also on a loaded host or with slow memory. A hanging process sleeps."""
import contextlib
import os
import time

QUIET_CORES = 0.05  # a group of processes that uses fewer cores makes no progress
SAMPLE_S = 1.0


def read(path):
    """Returns a small file of /proc. A file object would cost more than the kernel does."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, 4096)
    finally:
        os.close(file)


def processes():
    """Returns pid -> (parent, session) of every process."""
    found = {}
    for name in os.listdir('/proc'):
        if name.isdigit():
            with contextlib.suppress(OSError):
                fields = read(f'/proc/{name}/stat').rpartition(b')')[2].split(None, 4)
                found[int(name)] = (int(fields[1]), int(fields[3]))
    return found


def owners(roots, table):
    """Returns pid -> root for each process that descends from one of `roots` or is in its
    session."""
    owned = {root: root for root in roots}

    def owner(pid):
        if pid not in owned:
            owned[pid] = None   # ends a cycle of parents, which a reused pid could cause
            parent, session = table.get(pid, (0, 0))
            owned[pid] = session if session in roots else owner(parent) if pid in table else None
        return owned[pid]

    return {pid: root for pid in table if (root := owner(pid)) is not None}


def thread_time(folder):
    """Returns (CPU time, waiting time) of a thread. A kernel without schedstat has only the CPU
    time, in ticks."""
    with contextlib.suppress(FileNotFoundError):
        ran, waited, _ = map(int, read(f'{folder}/schedstat').split())
        return ran + waited
    with open(f'{folder}/stat', 'rb') as file:
        fields = file.read().rpartition(b')')[2].split()
    return (int(fields[11]) + int(fields[12])) * 10**9 // os.sysconf('SC_CLK_TCK')


def thread_times(pid):
    """Returns tid -> nanoseconds on a core and in a queue for a core. A thread that waits for a
    disk counts as busy."""
    times = {}
    with contextlib.suppress(OSError):
        for tid in os.listdir(f'/proc/{pid}/task'):
            with contextlib.suppress(OSError, ValueError):
                times[int(tid)] = thread_time(f'/proc/{pid}/task/{tid}')
    return times


def waits_for_disk(pid):
    with contextlib.suppress(OSError):
        for tid in os.listdir(f'/proc/{pid}/task'):
            with contextlib.suppress(OSError):
                with open(f'/proc/{pid}/task/{tid}/stat', 'rb') as stat:
                    if stat.read().rpartition(b')')[2].split()[0] == b'D':
                        return True
    return False


class Activity:
    """Measures the cores that groups of processes use or wait for, since the previous call."""

    def __init__(self):
        self.times, self.at = {}, time.monotonic()

    def sample(self, groups):
        """Returns root -> cores. `groups`: pid -> root. A new thread counts from its start."""
        now, times, wanted = time.monotonic(), {}, dict.fromkeys(groups.values(), 0)
        for pid, root in groups.items():
            for tid, spent in thread_times(pid).items():
                times[tid] = spent
                wanted[root] += max(0, spent - self.times.get(tid, 0))
        elapsed_ns = max(now - self.at, 1e-3) * 1e9
        self.times, self.at = times, now
        return {root: spent / elapsed_ns for root, spent in wanted.items()}


class Patience:
    """A time limit for processes without progress.

    is_over() becomes true after `seconds` in which no descendant of `root` was busy and `size()`
    did not grow. It also becomes true after ten times `seconds` without growth of `size()`:
    a process in an endless loop ends, too."""
    BUSY_FACTOR = 10

    def __init__(self, seconds, root=None, size=lambda: 0):
        self.seconds, self.root, self.size = seconds, root or os.getpid(), size
        self.start = self.sampled = time.monotonic()
        self.activity, self.quiet_s, self.known, self.grown = None, 0.0, frozenset(), 0

    def is_over(self):
        now = time.monotonic()
        if now - self.sampled < SAMPLE_S:
            return False
        elapsed, self.sampled = now - self.sampled, now
        if self.is_quiet():
            # A late sample counts as at most two sampling intervals, because the test itself could
            # not run.
            self.quiet_s += min(elapsed, 2 * SAMPLE_S)
        return (self.quiet_s >= self.seconds
                or now - self.start >= self.BUSY_FACTOR * self.seconds)

    def is_quiet(self):
        """Counts only processes of the last sample, because short commands of the waiting test
        are no progress."""
        size, pids = self.size(), set(owners([self.root], processes())) - {os.getpid()}
        has_grown, self.grown = size > self.grown, size
        if has_grown:
            self.start = time.monotonic()
        lasting, self.known = pids & self.known, pids
        is_first, self.activity = not self.activity, self.activity or Activity()
        cores = sum(self.activity.sample(dict.fromkeys(lasting, 0)).values())
        if is_first or has_grown or cores > QUIET_CORES:
            return False
        return not any(waits_for_disk(pid) for pid in lasting)


def idle_s():
    """Returns the idle seconds of all cores of the host, summed since its start."""
    with open('/proc/stat', encoding='ascii') as file:
        fields = file.readline().split()
    return (int(fields[4]) + int(fields[5])) / os.sysconf('SC_CLK_TCK')


def pressure_s():
    """Returns the seconds since the host's start in which a process waited for a core; 0:
    unknown."""
    with contextlib.suppress(OSError):
        with open('/proc/pressure/cpu', encoding='utf-8') as file:
            return int(file.readline().rpartition('total=')[2]) / 1e6
    return 0.0


class Stopwatch:
    """A clock that does not count seconds in which a process of the host waited for a core. Tests
    compare deadlines of the service with this clock, which runs more slowly on a busy host."""

    def __init__(self):
        self.began, self.before_s = time.monotonic(), pressure_s()

    def pressed_s(self):
        return pressure_s() - self.before_s

    def seconds(self):
        return time.monotonic() - self.began - self.pressed_s()
