"""Starts a service and emulated workers as real processes, for end-to-end tests.

Every started process is killed at the end, even if a case fails. Every wait has a deadline. After
the deadline the error names the awaited condition and shows the end of the log."""
import contextlib
import ctypes
import json
import os
import pathlib
import random
import select
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
import unittest

import progress
import tap

BUILD = pathlib.Path(os.environ['GRADPOOL_BUILD'])
GRADPOOL = BUILD / 'gradpool'
BENCH = BUILD / 'bench' / 'gradpool-bench'
WAIT_S = 30
WORKER_MS = 600000  # deadline of each wait of a worker: a stop in a test may be long on a busy host
SERVING = ('up', 'silent')  # states of an aggregator with lanes for jobs
# Under nohup started processes would inherit an ignored SIGHUP, but tests need the default action.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
PIDFD_GETFD = 438  # number of the system call, which is the same on every architecture
ESTABLISHED, LISTENING = '01', '0A'  # states in /proc/net/tcp
SO_ATTACH_FILTER = 26


def children(pid):
    """Returns the children of this process, from all of its threads."""
    pids = []
    with contextlib.suppress(OSError):
        for thread in pathlib.Path(f'/proc/{pid}/task').iterdir():
            pids += map(int, (thread / 'children').read_text().split())
    return pids


def running(*parts):
    """Returns the pids of processes with all of these texts in their command line. Words of a
    command line are separated by zero bytes."""
    pids = []
    for path in pathlib.Path('/proc').glob('[0-9]*/cmdline'):
        with contextlib.suppress(OSError):
            command = path.read_bytes()
            if all(part.encode() in command for part in parts):
                pids.append(int(path.parent.name))
    return pids


def kill_all(pids, number=signal.SIGKILL):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


class Process:
    """A child that writes to a file, which can be read while the child runs."""

    def __init__(self, command, folder, name, environment=None):
        self.name = name
        self.log = folder / f'{name}.log'
        with open(self.log, 'wb') as log:
            self.child = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL,
                                          stdout=log, stderr=subprocess.STDOUT,
                                          env={**os.environ, **(environment or {})})

    @property
    def pid(self):
        return self.child.pid

    def text(self):
        return self.log.read_text(errors='replace')

    def size(self):
        return self.log.stat().st_size

    def signal(self, number):
        self.child.send_signal(number)

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            self.child.kill()
        self.child.wait()

    def end(self):
        """Kills the process and its children. Local aggregators would otherwise survive their
        coordinator."""
        left = children(self.pid)
        self.kill()
        kill_all(left)

    def wait(self, seconds=WAIT_S):
        """Waits until the process ends. Returns its exit status."""
        until(lambda: self.child.poll() is not None, f'{self.name} ends', seconds, self)
        return self.child.returncode

    def wait_for(self, words, seconds=WAIT_S):
        until(lambda: words in self.text() or self.child.poll() is not None,
              f'{self.name} says {words!r}', seconds, self)
        if words not in self.text():
            raise AssertionError(f'{self.name} ended without saying {words!r}:\n{self.tail()}')

    def tail(self):
        return self.text()[-3000:] + self.doing()

    def doing(self):
        """Returns one line for each thread of the process: the kernel function in which it waits,
        and its CPU ticks."""
        lines = []
        with contextlib.suppress(OSError):
            for thread in sorted(pathlib.Path(f'/proc/{self.pid}/task').iterdir()):
                name, _, rest = (thread / 'stat').read_text().rpartition(')')
                fields = rest.split()
                lines.append(f'({self.name}: thread {name}) is {fields[0]} in '
                             f'{(thread / "wchan").read_text() or "?"}, ran {fields[11]} + '
                             f'{fields[12]} ticks)')
            lines.append(pathlib.Path('/proc/pressure/io').read_text())
        return '\n'.join(lines)


def until(condition, what, seconds=WAIT_S, process=None):
    """Waits until `condition()` is true. Fails after `seconds` without progress of any process of
    this test. `what` names the condition: a text, or a function that returns one. If `process` is
    set, a failure shows its log."""
    size = process.size if process else lambda: 0
    patience = progress.Patience(seconds, size=size)
    began = looked = time.monotonic()
    while not condition():
        if patience.is_over():
            what = what() if callable(what) else what
            raise AssertionError(f'never: {what}' + (f'\n{process.tail()}' if process else ''))
        # After each check the test pauses in proportion to the CPU time of the check, so that
        # checks leave the core to the awaited processes.
        cost_s, waited_s = time.monotonic() - looked, time.monotonic() - began
        time.sleep(min(max(0.005, 3 * cost_s, waited_s / 20), 0.2))
        looked = time.monotonic()


def end_of(child, seconds=WAIT_S):
    """Waits until a subprocess ends by itself. Returns its exit status."""
    until(lambda: child.poll() is not None, f'{child.args} ends', seconds)
    return child.returncode


def read_more(fd, patience, said):
    """Returns the next bytes of a pipe or terminal. An error shows `said`, the bytes read
    before."""
    while not select.select([fd], [], [], 0.1)[0]:
        if patience.is_over():
            raise AssertionError(f'no more output after {said!r}')
    more = os.read(fd, 4096)
    if not more:
        raise AssertionError(f'the output ended after {said!r}')
    return more


def finish(child, seconds=WAIT_S, given=None):
    """Like communicate() of a subprocess, with the time limit of until(). Kills the process at the
    limit."""
    patience = progress.Patience(seconds)
    while True:
        try:
            return child.communicate(given, timeout=progress.SAMPLE_S)
        except subprocess.TimeoutExpired:
            given = None    # the input is sent only with the first call
            if patience.is_over():
                child.kill()
                out = errors = None
                # an orphaned child of the process may keep the pipe open
                with contextlib.suppress(subprocess.TimeoutExpired):
                    out, errors = child.communicate(timeout=progress.SAMPLE_S)
                raise AssertionError(
                    f'{child.args} did not end:\n{out or ""}{errors or ""}') from None


def run(command, timeout=WAIT_S, input=None, capture_output=False, check=False, **options):
    """Like subprocess.run(), for a command that ends by itself. `timeout` has the meaning of
    `seconds` in until()."""
    if capture_output:
        options.update(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if input is not None:
        options.update(stdin=subprocess.PIPE)
    with subprocess.Popen([str(word) for word in command], **options) as child:
        try:
            out, errors = finish(child, timeout, input)
        except BaseException:
            child.kill()
            raise
    done = subprocess.CompletedProcess(child.args, child.returncode, out, errors)
    if check:
        done.check_returncode()
    return done


class Service:
    """Runs `gradpool serve` in its own folder, on a port chosen by the kernel. `before`: words in
    front of the command."""

    def __init__(self, *options, aggregators=2, folder=None, name='serve', before=()):
        self.folder = pathlib.Path(folder or tempfile.mkdtemp(prefix='gradpool-test-'))
        self.owns_folder = folder is None
        self.state = self.folder / 'state'
        self.options, self.aggregators, self.before = options, aggregators, before
        self.joined = 0     # number of aggregators started by the test itself
        self.children = []
        self.endpoint = self.operator_key = None
        self.name = 'serve'
        tap.witnesses.append(self)
        self.start(name)

    def tail(self):
        """Returns the last lines of the service and of its workers."""
        if not hasattr(self, 'serve'):
            return ''
        others = [child for child in self.children if child is not self.serve]
        return '\n'.join([self.serve.tail(), *(f'{c.name}: ... {c.text()[-600:]}' for c in others)])

    def start(self, name='serve', listen='gradpool://127.0.0.1:0'):
        self.serve = Process([*self.before, GRADPOOL, 'serve', '--state-dir', self.state,
                              '--listen', self.endpoint or listen, '--aggregators',
                              self.aggregators, *self.options], self.folder, name)
        self.children.append(self.serve)
        until(self.is_up, 'the service is up', process=self.serve)
        self.endpoint = self.endpoint or self.status()['endpoint']

    def is_up(self):
        """Runs `gradpool status` only when the service has its socket, because a command costs far
        more than a look at the folder."""
        if self.serve.child.poll() is not None:
            raise AssertionError(f'serve ended:\n{self.serve.tail()}')
        if not (self.state / 'control.sock').exists():
            return False
        with contextlib.suppress(AssertionError):  # not ready yet
            status = self.status()
            self.endpoint = status['endpoint']
            up = sum(a['state'] == 'up' for a in status['aggregators'])
            return up == self.aggregators + self.joined
        return False

    def ask(self, *command):
        return run([GRADPOOL, *command, '--endpoint', f'unix:{self.state}/control.sock'],
                   capture_output=True, text=True)

    def status(self):
        answer = self.ask('status', '--json')
        if not answer.stdout.strip():
            raise AssertionError(f'gradpool status: {answer.stderr}\n{self.serve.tail()}')
        return json.loads(answer.stdout)

    def job(self, name):
        answer = self.ask('jobs', '--json')
        return next((j for j in json.loads(answer.stdout)['jobs'] if j['job'] == name), None)

    def serving(self, *states):
        """Returns the aggregators of `status` in these states. The default includes silent
        aggregators, because a busy host can delay their answers."""
        return [a for a in self.status()['aggregators'] if a['state'] in (states or SERVING)]

    def pids(self, *states):
        return [a['pid'] for a in self.serving(*states)]

    def await_pids(self, pids):
        until(lambda: self.pids('up') == pids, f'aggregators {pids} are up, and no others',
              process=self.serve)

    def worker(self, job, rank, workers, *options, name=None, environment=None):
        process = Process([BENCH, 'push', '--endpoint', self.endpoint, '--job', job, '--rank', rank,
                           '--workers', workers, '--json', '--timeout-ms', WORKER_MS, *options],
                          self.folder, name or f'{job}.{rank}', environment)
        self.children.append(process)
        return process

    def workers(self, job, count, *options, **keywords):
        return [self.worker(job, rank, count, *options, **keywords) for rank in range(count)]

    def tenant(self, *command):
        return run([GRADPOOL, 'tenant', *command, '--state-dir', self.state],
                   capture_output=True, text=True)

    def tenant_key(self, name, *options):
        """Adds a tenant. Returns the environment variable with the tenant's key."""
        made = self.tenant('add', name, *options)
        if made.returncode != 0:
            raise AssertionError(made.stderr)
        path = self.folder / f'{name}.key'
        path.touch(mode=0o600)
        path.write_text(made.stdout)
        return {'GRADPOOL_KEY_FILE': str(path)}

    def operator(self):
        """Returns the environment variable with an operator's key, for example for an aggregator on
        another host."""
        if not self.operator_key:
            self.operator_key = self.tenant_key('nodes', '--operator')
        return self.operator_key

    def stop(self, number=None):
        """Stops the service and its jobs with `gradpool stop`, or with a signal. Returns the exit
        status."""
        if number:
            self.serve.signal(number)
        else:
            done = run([GRADPOOL, 'stop', '--state-dir', self.state], capture_output=True,
                       text=True, timeout=90)
            assert done.returncode == 0, f'gradpool stop: {done.returncode}: {done.stderr}'
        return self.serve.wait()

    def local_aggregators(self):
        """Returns the pids of local aggregators, even after their coordinator has ended."""
        return running('\0aggregator\0', f'\0unix:{self.state}/control.sock\0')

    def end(self):
        for child in self.children:
            child.kill()
        kill_all(self.local_aggregators())
        tap.witnesses[:] = [w for w in tap.witnesses if w is not self]
        if self.owns_folder:
            shutil.rmtree(self.folder, ignore_errors=True)


def free_ports(count):
    """Returns the first of `count` consecutive free ports. They are outside the range from which
    the kernel assigns ports. Programs running at the same time get other ports."""
    low = int(pathlib.Path('/proc/sys/net/ipv4/ip_local_port_range').read_text().split()[0])
    while True:
        first = random.randrange(10000, max(low, 20000) - count)
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            for i in range(count):
                held.enter_context(socket.socket()).bind(('127.0.0.1', first + i))
            return first


def descriptors(pid):
    """Returns the entries of a process's /proc/PID/fd. SkipTest: the service is not dumpable, so
    only a process with CAP_SYS_PTRACE can read them."""
    try:
        return list(pathlib.Path(f'/proc/{pid}/fd').iterdir())
    except PermissionError:
        raise unittest.SkipTest('/proc/PID/fd of the service needs CAP_SYS_PTRACE') from None


def connections(pid, port, end='remote', state=ESTABLISHED):
    """Yields a process's TCP connections with this port at the local or remote end, each as a
    descriptor in this process. Includes listening sockets."""
    field, links = {'local': 1, 'remote': 2}[end], {}
    for line in pathlib.Path('/proc/net/tcp').read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == state:
            links[f'socket:[{fields[9]}]'] = int(fields[field].rsplit(':', 1)[1], 16)
    libc = ctypes.CDLL(None, use_errno=True)
    process = os.pidfd_open(pid)
    for entry in descriptors(pid):
        with contextlib.suppress(OSError):
            if links.get(os.readlink(entry)) == port:
                copy = libc.syscall(PIDFD_GETFD, process, int(entry.name), 0)
                if copy < 0:
                    raise unittest.SkipTest('pidfd_getfd: ' + os.strerror(ctypes.get_errno()))
                with socket.socket(fileno=copy) as link:
                    yield link
    os.close(process)


def cut_connections(pid, port):
    """Closes a process's TCP connections to this port from outside, like a network fault. Returns
    the number of closed connections."""
    links = 0
    for link in connections(pid, port):
        link.shutdown(socket.SHUT_RDWR)
        links += 1
    return links


def forget_connections(pid, port, end='remote'):
    """Drops all packets that arrive on these connections, like a firewall that has lost its table.
    Other connections still work. Returns the number of such connections. SkipTest: users of this
    host cannot drop packets."""
    drop_all = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0))     # BPF_RET, 0 bytes
    program, links = struct.pack('HL', 1, ctypes.addressof(drop_all)), 0
    for link in connections(pid, port, end):
        try:
            link.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
        except PermissionError:
            raise unittest.SkipTest('no socket can have a filter here: CAP_NET_ADMIN is needed')
        links += 1
    return links


def reset_connections(port, end='local'):
    """Resets all TCP connections with this port at the local or remote end. The kernel closes this
    end and sends a reset to the other end. Returns the number of reset connections. SkipTest: users
    of this host cannot reset connections."""
    if not shutil.which('ss'):
        raise unittest.SkipTest('no `ss` here, which resets connections (iproute2)')
    side = {'local': 'sport', 'remote': 'dport'}[end]
    which = ['state', 'established', side, '=', f':{int(port)}']
    found = run(['ss', '-Htn', *which], capture_output=True, text=True).stdout.splitlines()
    ended = run(['ss', '-HKtn', *which], capture_output=True, text=True).stdout.splitlines()
    if found and not ended and set(found) & set(
            run(['ss', '-Htn', *which], capture_output=True, text=True).stdout.splitlines()):
        raise unittest.SkipTest('`ss -K` ends no connection here: it needs CAP_NET_ADMIN, and a '
                                'kernel with CONFIG_INET_DIAG_DESTROY')
    return len(ended)


def result(process):
    """Waits until a worker ends without an error. Returns its JSON line."""
    code = process.wait(120)
    if code != 0:
        raise AssertionError(f'{process.name} ended with {code}:\n{process.tail()}')
    return json.loads(process.text().strip().splitlines()[-1])


def end_training(*workers):
    """Kills verbose workers that train forever. Checks that all their sums were right."""
    for worker in workers:
        worker.wait_for('round ')
    for worker in workers:
        if ' wrong\n' in worker.text():
            raise AssertionError(f'{worker.name} got wrong sums:\n{worker.tail()}')
        worker.kill()


def finish_training(*workers):
    """Waits until each verbose worker has completed one more round with right sums, then kills
    the workers."""
    for worker in workers:
        seen = worker.size()
        until(lambda worker=worker, seen=seen: worker.size() > seen + 200
              or worker.child.poll() is not None, f'{worker.name} trains on', process=worker)
        if worker.child.poll() is not None:
            raise AssertionError(f'{worker.name} ended:\n{worker.tail()}')
    end_training(*workers)


def container():
    """Returns words in front of a command. They run the command in a new PID namespace, as the
    first process of a container with the host's network. SkipTest: this host does not permit PID
    namespaces."""
    words = 'unshare', '--pid', '--fork', '--mount-proc'
    if subprocess.run([*words, 'true'], capture_output=True).returncode:
        raise unittest.SkipTest('no PID namespace can be made here: CAP_SYS_ADMIN is needed')
    return words


def state_of(pid):
    """Returns the letter of the state of a process; None: the process has ended."""
    with contextlib.suppress(OSError):
        return pathlib.Path(f'/proc/{pid}/stat').read_text().rsplit(')', 1)[1].split()[0]


def is_alive(pid):
    """Returns false if the process has ended, even if its parent has not reaped it yet."""
    return state_of(pid) not in (None, 'Z', 'X')


def cpu_s(pid):
    """Returns the CPU time of a process so far, in steps of 10 ms."""
    fields = pathlib.Path(f'/proc/{pid}/stat').read_text().rsplit(')', 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')
