"""The start of one process: its socket, its log, its command and its environment.

The other side sends a number of bytes, and these bytes: the number of the command's words, and the
words and variables, each with a zero byte. The new process sends its number (int32), and waits for
one byte. If the socket ends instead, nobody watches this process, so it ends."""
import os
import socket
import struct


class Start:
    """`words` of the command, and `environment`: {name: value} of bytes; both after receive()."""

    def __init__(self, descriptor, log):
        self._socket, self._log = socket.socket(fileno=descriptor), log
        self.words = self.environment = None

    def close(self):
        self._socket.close()
        os.close(self._log)

    def receive(self):
        """Leads a session of its own, whose output is the log, and reads the command."""
        os.setsid()
        for number in 1, 2:
            os.dup2(self._log, number)
        os.close(self._log)
        size, = struct.unpack('<I', self._read(4))
        data = self._read(size)
        count, = struct.unpack_from('<I', data)
        texts = data[4:].split(b'\0')[:-1]
        self.words = list(map(os.fsdecode, texts[:count]))
        self.environment = dict(text.split(b'=', 1) for text in texts[count:] if b'=' in text)

    def _read(self, size):
        data = b''
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                os._exit(1)
            data += more
        return data

    def announce(self):
        """Sends the number of this process. Returns when the process is watched."""
        try:
            self._socket.sendall(struct.pack('<i', os.getpid()))
            is_watched = self._socket.recv(1)
        except OSError:
            is_watched = b''
        if not is_watched:
            os._exit(1)
        self._socket.close()

    def send_status(self, status):
        try:
            self._socket.sendall(struct.pack('<i', status))
        except OSError:
            pass    # the study has ended
