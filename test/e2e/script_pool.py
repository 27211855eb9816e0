"""A short pool of workers that speaks the real protocol. The pool joins a site, starts a process
for each order to start a worker, and reports the end of each process. The test chooses the command
of each job, because no message contains a command."""
import os
import pathlib
import re
import select
import socket
import struct
import subprocess

from harness import until

HEADER = pathlib.Path(__file__).parents[2] / 'svc/channel/channel.h'
VERSION = int(re.search(r'CHANNEL_VERSION (\d+)', HEADER.read_text())[1])
CLIENT = 1
HELLO, WELCOME, FAILURE, DONE = 2, 3, 4, 5
JOIN, JOINED, SUBMIT, WITHDRAW, REPORTS, ORDERS = 110, 111, 112, 113, 114, 115
START, LEAVE, END, OVER = range(4)
STARTED, ENDED = 0, 1
FIELDS = ('verb', 'job', 'rank', 'incarnation', 'slot', 'workers', 'workers_max', 'text', 'code')


def varint(value):
    out = b''
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def message(**fields):
    """Packs a protobuf message. Fields are named f1, f2, ...; a list is a repeated field. A tuple
    of one number is a field of 64 bits."""
    out = b''
    for name, value in fields.items():
        number = int(name[1:])
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, tuple):
                out += varint(number << 3 | 1) + struct.pack('<Q', *each)
            elif isinstance(each, int):
                out += varint(number << 3) + varint(each)
            else:
                text = each.encode() if isinstance(each, str) else each
                out += varint(number << 3 | 2) + varint(len(text)) + text
    return out


def number_at(data, at):
    value = shift = 0
    while True:
        byte, at = data[at], at + 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def unpack(data):
    """Returns the fields of a message: lists of numbers and of bytes."""
    fields, at = {}, 0
    while at < len(data):
        key, at = number_at(data, at)
        value, at = number_at(data, at)
        if key & 7 == 2:
            value, at = data[at:at + value], at + value
        fields.setdefault(key >> 3, []).append(value)
    return fields


class Order:
    def __init__(self, data):
        fields = unpack(data)
        for number, name in enumerate(FIELDS, 1):
            value = fields.get(number, [b'' if name in ('job', 'text') else 0])[0]
            setattr(self, name, value.decode() if isinstance(value, bytes) else value)

    def worker(self):
        return message(f1=self.job, f2=self.rank, f3=self.incarnation)


class Pool:
    """`commands`: for each job a function of the order, which returns the command and variables."""

    def __init__(self, service, commands, site='here', number=7):
        self.service, self.commands, self.site, self.number = service, commands, site, number
        self.alive, self.orders, self.over, self.started = {}, [], {}, []
        self.link = None

    def connect(self):
        """Connects, and joins with all workers that exist."""
        host, port = self.service.endpoint.removeprefix('gradpool://').rsplit(':', 1)
        self.link, self.data, self.last, self.replies = \
            socket.create_connection((host, int(port))), b'', 0, {}
        self.ask(HELLO, message(f1=VERSION, f2=CLIENT, f3='script'))
        join = message(f1=self.site, f2=(self.number,), f3=socket.gethostname(), f4=os.getpid(),
                       f5=[order.worker() for order, _ in self.alive.values()])
        return unpack(self.ask(JOIN, join)[JOINED][0])

    def ask(self, kind, body):
        """Sends a request. Returns the fields of the reply; fails if the request is refused."""
        self.last += 1
        envelope = message(f1=self.last, **{f'f{kind}': body})
        self.link.sendall(struct.pack('<I', len(envelope)) + envelope)
        asked = self.last
        until(lambda: self.look() or asked in self.replies, f'a reply to message {kind}',
              process=self.service.serve)
        reply = self.replies.pop(asked)
        assert FAILURE not in reply, unpack(reply[FAILURE][0])
        return reply

    def look(self):
        """Reads all messages that have arrived."""
        while select.select([self.link], [], [], 0)[0]:
            more = self.link.recv(65536)
            if not more:
                return
            self.data += more
        while len(self.data) >= 4 and len(self.data) - 4 >= struct.unpack('<I', self.data[:4])[0]:
            end = 4 + struct.unpack('<I', self.data[:4])[0]
            fields, self.data = unpack(self.data[4:end]), self.data[end:]
            if fields.get(1, [0])[0]:
                self.replies[fields[1][0]] = fields
            elif ORDERS in fields:
                self.orders += map(Order, unpack(fields[ORDERS][0]).get(1, []))

    def submit(self, job, workers, workers_max):
        self.ask(SUBMIT, message(f1=job, f2=workers, f3=workers_max))

    def withdraw(self, job):
        self.ask(WITHDRAW, message(f1=job))

    def report(self, order, **fields):
        self.ask(REPORTS, message(f1=[message(f2=order.worker(), **fields)]))

    def start(self, order):
        command, variables = self.commands[order.job](order)
        variables = {'GRADPOOL_ENDPOINT': self.service.endpoint,
                     'GRADPOOL_INCARNATION': str(order.incarnation), **variables}
        process = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True,
                                   env={**os.environ, **variables})
        if order.job != 'idle':     # workers written in C wait for the end of their input
            process.stdin.close()
            process.stdin = None
        self.alive[order.job, order.rank] = order, process
        self.started.append((order.job, order.rank, order.incarnation))
        self.report(order, f1=STARTED)

    def obey(self):
        """Carries out all orders, and reports processes that have ended."""
        self.look()
        orders, self.orders = self.orders, []
        for order in orders:
            if order.verb == START:
                self.start(order)
            elif order.verb == END and (order.job, order.rank) in self.alive:
                self.alive[order.job, order.rank][1].terminate()
            elif order.verb == OVER:
                self.over[order.job] = order
        for key, (order, process) in list(self.alive.items()):
            if process.poll() is None:
                continue
            del self.alive[key]
            errors = process.communicate()[1]
            if process.returncode > 0:
                raise AssertionError(f'{key} ended with {process.returncode}: {errors}')
            self.report(order, f1=ENDED, f3=max(process.returncode, 0),
                        f4=max(-process.returncode, 0))

    def until(self, condition, what):
        until(lambda: self.obey() or condition(), what, process=self.service.serve)

    def ranks(self, job):
        return sorted(rank for name, rank in self.alive if name == job)

    def kill(self):
        for _, process in self.alive.values():
            process.kill()
            process.communicate()
