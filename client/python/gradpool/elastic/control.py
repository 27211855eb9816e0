"""The socket between a worker and its runner (python3 -m gradpool.elastic), which has started the
worker's process. Messages are JSON. Without a runner nothing is sent. Imports no torch."""
import json
import os
import socket
import stat
import threading

from ..errors import GradpoolError

VARIABLE = '_GRADPOOL_RUNNER'   # has the descriptor of the socket; users do not set it
MESSAGE_BYTES = 65536
_RESIZE_MS = 30 * 60 * 1000
_PLACE_S = 10   # the runner sends the place before it starts the process
_links = []     # the link of this process, once a Run exists


class Link:
    """Sends the progress of the present Run, and resizes the job at the runner's request.

      place  {'rank': its rank, 'workers': workers at the start of the job, 'workers_max': ...};
             without a runner each value is None"""

    def __init__(self, to_runner):
        self._socket, self._job = to_runner, None
        self.place = dict.fromkeys(('rank', 'workers', 'workers_max'))
        if to_runner is not None:
            to_runner.settimeout(_PLACE_S)
            self.place = json.loads(to_runner.recv(MESSAGE_BYTES))
            to_runner.settimeout(None)
            threading.Thread(target=self._listen, daemon=True).start()

    def attach(self, job):
        self._job = job

    def send(self, **message):
        """Sends a message without waiting. Drops the message if the runner has ended."""
        try:
            if self._socket is not None:
                self._socket.send(json.dumps(message).encode(), socket.MSG_DONTWAIT)
        except OSError:
            pass

    def _listen(self):
        while data := self._socket.recv(MESSAGE_BYTES):
            threading.Thread(target=self._resize, args=(json.loads(data)['resize'],),
                             daemon=True).start()

    def _resize(self, workers):
        try:
            self._job.resize(workers, _RESIZE_MS)
            self.send(resized=workers)
        except GradpoolError as error:
            self.send(refused=workers, errno=error.errno, text=str(error))


def link():
    """Returns the Link of this process."""
    if not _links:
        _links.append(Link(_socket_of_runner()))
    return _links[0]


def _socket_of_runner():
    text = os.environ.get(VARIABLE, '')
    try:
        if text.isdecimal() and stat.S_ISSOCK(os.fstat(int(text)).st_mode):
            os.set_inheritable(int(text), False)
            return socket.socket(fileno=int(text))
    except OSError:
        pass
    return None
