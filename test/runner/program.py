"""One running test program: its process, its output files, and its progress."""
import contextlib
import os
import random
import signal
import subprocess
import time

from outcome import Outcome
import progress

QUIET_S = 180       # longest time without progress: without CPU, disk access, or output
SILENT_S = 900      # longest time without output, also of a busy program
SILENT_LONG_S = 2400    # the same for a long form, whose cases take longer
ENDING_S = 0.2      # wait for processes that end with their program
KILL_S = 10


class Program:
    """A test of a build. start() may be called once; finish() is called when has_ended() is
    true."""

    def __init__(self, test, build, order):
        self.test, self.build, self.order = test, build, order
        self.name = test['name']
        self.suites = {suite.rpartition(':')[2] for suite in test['suite']}
        self.process = self.pid = self.ended_for = None
        self.again = []     # variables with which the case can be repeated
        self.cores = self.cpu_s = self.seconds = 0.0
        self.size, self.quiet_s = 0, 0.0

    def __str__(self):
        return f'{self.build.name}:{self.name}'

    @property
    def is_alone(self):
        return not self.test['is_parallel']

    def path(self, ending):
        return self.build.output / f'{self.name}.{ending}'

    def start(self, environment):
        self.build.output.mkdir(exist_ok=True)
        command = [*self.build.wrapper, *self.test['cmd']]
        # As meson does, so that memory from malloc() does not contain zeros by chance.
        perturb = environment.get('MALLOC_PERTURB_') or str(random.randrange(1, 256))
        environment = {**environment, **self.build.environment, **self.test['env'],
                       'MALLOC_PERTURB_': perturb}
        self.again = [f'{name}={environment[name]}' for name in
                      ('GRADPOOL_TEST_LONG', 'MALLOC_PERTURB_') if name in environment]
        self.silent_s = SILENT_LONG_S if environment.get('GRADPOOL_TEST_LONG') else SILENT_S
        folder = self.test.get('workdir') or str(self.build.folder)
        with open(self.path('out'), 'wb') as out, open(self.path('err'), 'wb') as err:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out,
                                            stderr=err, cwd=folder, env=environment,
                                            start_new_session=True, preexec_fn=hear_interrupts)
        self.pid = self.process.pid
        self.started = self.grown_at = time.monotonic()

    @property
    def age_s(self):
        return time.monotonic() - self.started

    def has_ended(self):
        pid, status, used = os.wait4(self.pid, os.WNOHANG)
        if pid == 0:
            return False
        self.process.returncode = os.waitstatus_to_exitcode(status)
        # CPU time of the process and of all children that it has waited for
        self.cpu_s = used.ru_utime + used.ru_stime
        return True

    def note_use(self, cores, elapsed_s, pids):
        """Records the cores that the program's processes `pids` used or waited for in the last
        `elapsed_s`."""
        self.cores, size = cores, self.output_bytes()
        if size > self.size:
            self.size, self.grown_at, self.quiet_s = size, time.monotonic(), 0.0
        is_busy = cores > progress.QUIET_CORES / 5 or any(map(progress.waits_for_disk, pids))
        self.quiet_s = 0.0 if is_busy else self.quiet_s + elapsed_s

    def output_bytes(self):
        return sum(os.stat(self.path(ending)).st_size for ending in ('out', 'err'))

    def stands_still(self):
        """Returns the reason to end the program, or None."""
        if self.quiet_s > QUIET_S:
            return f'no progress for {QUIET_S} s: no CPU used, no output'
        if time.monotonic() - self.grown_at > self.silent_s and 'explore' not in self.suites:
            return f'no output for {self.silent_s} s'
        return None

    def end(self, reason, pids):
        """Kills the program and all processes that it has started. `pids`: its processes."""
        self.ended_for = reason
        with open(self.path('err'), 'a', encoding='utf-8') as err:
            err.write(f'runner: {reason}\n' + ''.join(map(describe, pids)))
        kill(pids)

    def finish(self):
        self.seconds = self.age_s
        left = left_behind(self.pid)
        kill(session_of(self.pid))
        text = {ending: self.path(ending).read_text(errors='replace') for ending in ('out', 'err')}
        return Outcome(self.name, self.process.returncode, text['out'], text['err'],
                       self.ended_for, self.test['protocol'] == 'tap', left)


def hear_interrupts():
    """Makes SIGINT raise KeyboardInterrupt in the runner, and sets its default action in executed
    programs. A shell starts background processes with SIGINT ignored, and children inherit this."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def session_of(root):
    """Returns the running processes of the program's session."""
    return [pid for pid, (_, session) in progress.processes().items() if session == root]


def left_behind(root):
    """Returns pids and commands of processes that still run shortly after the end of their
    program."""
    deadline, left = time.monotonic() + ENDING_S, commands(session_of(root))
    while left and time.monotonic() < deadline:
        time.sleep(ENDING_S / 10)
        left = commands(session_of(root))
    return left


def commands(pids):
    """Returns pids and commands of running processes, as text."""
    found = []
    for pid in pids:
        with contextlib.suppress(OSError):
            # empty for an ended process that its parent has not waited for
            with open(f'/proc/{pid}/cmdline', 'rb') as file:
                if command := file.read().replace(b'\0', b' ').decode(errors='replace').strip():
                    found.append(f'{pid} {command[:160]}')
    return found


def kill(pids):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def describe(pid):
    """Returns one line for each thread: its state, and the kernel function in which it waits."""
    lines = []
    with contextlib.suppress(OSError):
        with open(f'/proc/{pid}/cmdline', 'rb') as file:
            command = file.read().replace(b'\0', b' ').decode(errors='replace')[:160]
        lines.append(f'{pid} {command}\n')
        for tid in os.listdir(f'/proc/{pid}/task'):
            with open(f'/proc/{pid}/task/{tid}/stat', encoding='utf-8') as stat:
                name, _, fields = stat.read().partition('(')[2].rpartition(')')
            with open(f'/proc/{pid}/task/{tid}/wchan', encoding='utf-8') as wchan:
                state = fields.split()[0]
                lines.append(f'  thread {tid} {name}: {state} in {wchan.read() or "?"}\n')
    return ''.join(lines)
