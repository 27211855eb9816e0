"""The service of a study: its slots, and a service of the study's own (explore --slots)."""
import contextlib
import errno
import json
import os
import shutil
import subprocess
import time

from ..errors import GradpoolError, mismatch
from . import locks
from .ending import held

PROGRAM = '_GRADPOOL_PROGRAM'   # path of the gradpool that has started this process
ENDPOINT = 'gradpool://127.0.0.1:7077'
_ASK_S = 30
_UP_S = 60
_STOP_S = 120
_PAUSE_S = 0.2
_LOOK_S = 1     # time between two looks at the process of the service


def program():
    """Returns the path of gradpool."""
    path = os.environ.get(PROGRAM) or shutil.which('gradpool')
    if not path:
        raise GradpoolError(errno.ENOENT, "there is no program 'gradpool' in PATH, which starts "
                            'the trials; install gradpool, or start this script with `gradpool '
                            'explore`')
    return path


def _ask(*words):
    """Returns the answer of a subcommand with --json."""
    try:
        done = subprocess.run([program(), *words, '--json'], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=_ASK_S, check=False)
    except subprocess.TimeoutExpired:
        raise GradpoolError(errno.ETIMEDOUT, f'gradpool {words[0]} has not answered within '
                            f'{_ASK_S} s; look at the service') from None
    if not done.stdout.strip():
        raise GradpoolError(errno.EHOSTDOWN, done.stderr.strip() or
                            f'gradpool {words[0]}: the service does not answer; start a '
                            'service with gradpool serve --worker-slots')
    return json.loads(done.stdout)


def slots_of(endpoint, site):
    """Returns the number of slots of a site. Raises Mismatch if there are none."""
    sites = _ask('jobs', '--endpoint', endpoint).get('sites', [])
    for one in sites:
        if one['site'] == site and one['slots'] > 0:
            return one['slots']
    names = ', '.join(one['site'] for one in sites) or 'none'
    raise mismatch(f'the service at {endpoint} has no slots for site {site} (sites: {names}); '
                   f'start the service with --worker-slots {site}=8, give another --site, or give '
                   '--slots without an endpoint')


class Own:
    """A service with slots for one study on this host. The service survives the process of the
    study, as the trials do. `endpoint`: that of the former process; None: a new one."""

    def __init__(self, folder, site, slots, endpoint=None):
        self._state, self._looked_s = os.path.join(folder, 'service'), time.monotonic()
        self._site, self._slots, self._child = site, slots, None
        self._door = f'unix:{self._state}/control.sock'
        self.endpoint = self._find() or self._start(endpoint)

    def _find(self):
        try:
            return _ask('status', '--endpoint', self._door)['endpoint']
        except (GradpoolError, ValueError, KeyError):
            return None

    def keep(self, say):
        """Starts the service again if its process has ended, at the same address, which the trials
        know. Raises GradpoolError if this is not possible.

          say  function that gets a line for the user"""
        now_s = time.monotonic()
        if now_s - self._looked_s < _LOOK_S:
            return
        self._looked_s = now_s
        if locks.is_held(os.path.join(self._state, 'lock')):
            return
        say(f'the service of this study has ended by itself, see {self._state}.log; it is started '
            'again, and the trials train on')
        self._start(self.endpoint)

    def _start(self, endpoint):
        log_path, child = self._state + '.log', None
        if self._child is not None:
            self._child.wait()      # has ended: its lock is free
        command = [program(), 'serve', '--state-dir', self._state, '--worker-slots',
                   f'{self._site}={self._slots}', '--listen', endpoint or 'gradpool://127.0.0.1:0']
        try:
            with open(log_path, 'ab') as log, held():
                child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log,
                                         stderr=log, start_new_session=True)
            self._child = child
            return self._await(child, log_path)
        except BaseException:
            if child is not None:
                child.terminate()       # no other process knows its number
                child.wait(_STOP_S)
            raise

    def _await(self, child, log_path):
        until_s = time.monotonic() + _UP_S
        while (found := self._find()) is None:
            if child.poll() is not None or time.monotonic() > until_s:
                raise GradpoolError(errno.EHOSTDOWN, 'the service of this study has not started; '
                                    f'see {log_path}')
            time.sleep(_PAUSE_S)
        return found

    def stop(self):
        """Ends the service and all its jobs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run([program(), 'stop', '--state-dir', self._state], check=False,
                           stdin=subprocess.DEVNULL, capture_output=True, timeout=_STOP_S,
                           start_new_session=True)     # Ctrl-C of the terminal must not end it
