"""Starts the pools of a study: directly, or with --preload from a process that imports modules once
for the workers of all trials (gradpool._preload). A pool gets the modules by fork()."""
import errno
import os
import signal
import socket
import struct
import subprocess

from .ending import held
from .pool import code_of, environment_of, Pool
from .worker import VARIABLE

_LOG = 'preload.log'
_ROOM = '_GRADPOOL_ROOM'    # its value is memory in which /proc shows variables of a worker
_ROOM_BYTES = 4096
_FORK_S = 10
# errors of the folder of a trial, or of this process; the process that forks workers is well
_NOT_OF_PARENT = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.ENOENT, errno.EIO,
                  errno.EMFILE, errno.ENFILE)
_TEXT_BYTES = 512


def starter_of(folder, settings, say):
    """Returns the starter of a study's pools."""
    modules = settings.get('preload')
    return _Parent(folder, modules, settings, say) if modules else _Direct()


class _Direct:
    words = ()      # options of each pool

    def is_ready(self):
        """Returns whether pools can be started."""
        return True

    def start(self, folder, command, cwd, environment):
        """Starts a pool. Returns a Pool."""
        return Pool.start(folder, command, cwd, environment)

    def close(self):
        """Ends the process that imports modules. The pools continue."""


class _Parent(_Direct):
    """The process that imports the modules. Without this process pools are started directly."""

    def __init__(self, folder, modules, settings, say):
        self._modules, self._say, self._is_ready, self._child = modules, say, False, None
        self.words = ['--preload', modules]
        environment = {**environment_of(folder), _ROOM: _ROOM_BYTES * ' '}
        del environment[VARIABLE]
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = settings['command']
        words = [command[0], '-m', 'gradpool._preload', str(theirs.fileno()), modules, *command]
        with theirs, open(os.path.join(folder, _LOG), 'ab') as log, held():
            try:
                self._child = subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=settings['cwd'],
                    env=environment, pass_fds=[theirs.fileno()], start_new_session=True)
            except OSError as error:
                self._lose(error.strerror)

    def is_ready(self):
        if self._is_ready or self._socket is None:
            return True
        try:
            text = self._socket.recv(_TEXT_BYTES, socket.MSG_DONTWAIT).decode()
        except BlockingIOError:
            return False
        except OSError:
            text = ''
        self._is_ready = text == 'ready'
        if not self._is_ready:
            self._lose(text or 'the process that imports modules has ended; see preload.log')
        return True

    def start(self, folder, command, cwd, environment):
        if self._socket is not None:
            try:
                return Pool.start(folder, command, cwd, environment, self._fork)
            except OSError as error:
                if error.errno in _NOT_OF_PARENT:
                    raise
                self._lose('the process that forks workers has ended')
                at = command.index('--preload')     # option of the pool; the script has later ones
                command = command[:at] + command[at + 2:]
        return super().start(folder, command, cwd, environment)

    def _fork(self, command, log, cwd, environment):
        """Forks a pool. `cwd` is not used: the parent already runs in the folder of all pools."""
        link, theirs = socket.socketpair()
        link.settimeout(_FORK_S)
        try:
            with theirs:
                socket.send_fds(self._socket, [b'P'], [theirs.fileno(), log.fileno()])
            return _Child(link, _begin(link, command, environment), environment[VARIABLE])
        except BaseException:
            link.close()        # the new process ends by itself
            raise

    def _lose(self, text):
        self._say(f'--preload {self._modules}: {text}. Trials are started without --preload')
        self.words = ()
        self.close()

    def close(self):
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None


class _Child:
    """A forked pool. The process that has forked the pool sends its exit code."""

    def __init__(self, link, pid, folder):
        self.pid, self._link, self._folder, self._code = pid, link, folder, None

    def poll(self):
        """Returns the exit code, negative for a signal; None: the pool runs."""
        if self._code is None:
            try:
                data = self._link.recv(4, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
            except OSError:
                data = b''
            self._code = struct.unpack('<i', data)[0] if len(data) == 4 else self._lost_code()
        return self._code

    def _lost_code(self):
        """Returns the exit code, after the end of the process that would have sent the code; None:
        the pool runs."""
        try:
            os.kill(self.pid, 0)
            return None
        except ProcessLookupError:
            code = code_of(self._folder)
        return -signal.SIGKILL if code is None else code


def _begin(link, command, environment):
    """Sends the command to the new process, and lets it begin. Returns its number."""
    texts = [os.fsencode(word) + b'\0' for word in command]
    texts += [os.fsencode(f'{name}={value}') + b'\0' for name, value in environment.items()]
    data = struct.pack('<I', len(command)) + b''.join(texts)
    link.sendall(struct.pack('<I', len(data)) + data)
    answer = link.recv(4, socket.MSG_WAITALL)
    if len(answer) < 4:
        raise BrokenPipeError
    link.sendall(b'\0')
    return struct.unpack('<i', answer)[0]
