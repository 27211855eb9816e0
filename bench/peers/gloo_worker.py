"""A worker program with PyTorch's all_reduce on gloo: all ranks, one process each.

Usage: gloo_worker.py ADDRESS WORKERS

Uses the protocol of bench/compare/seat.h and computes the gradients of bench/compare/pattern.c.
all_reduce works in place. After r rounds an element is the sum times workers^(r-1), except for the
stamps, which are written again before each round."""
import os
import socket
import sys
import tempfile
import time

try:
    import numpy
    import torch
    from torch import distributed
except ImportError as error:
    sys.exit(f'gradpool-bench: gloo needs PyTorch: {error}')

PERIOD = 16384


def values(places, rank, turn):
    """Computes the same values as value() of pattern.c."""
    seed = (rank * 2246822519 + turn * 668265263 + 374761393) & 0xffffffff
    x = places.astype(numpy.uint32) * numpy.uint32(2654435761) + numpy.uint32(seed)
    x ^= x >> numpy.uint32(15)
    x *= numpy.uint32(3266489917)
    x ^= x >> numpy.uint32(13)
    return (x >> numpy.uint32(14)).astype(numpy.float32) * numpy.float32(2.0 ** -17) - \
        numpy.float32(1)


def sums(places, workers, turn):
    return sum(values(places, rank, turn) for rank in range(workers))


class Seat:
    def __init__(self, address, rank, workers):
        self.rank, self.workers = rank, workers
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect('\0' + address)
        self.lines = self.socket.makefile('r')
        self.tensor = self.array = self.result = self.first = self.rounds = None
        self.say(f'seat {rank}')

    def say(self, text):
        self.socket.sendall(text.encode() + b'\n')

    def fill(self):
        elements = len(self.array)
        period = values(numpy.arange(min(PERIOD, elements)), self.rank, 0)
        self.array[:] = numpy.tile(period, -(-elements // PERIOD))[:elements]

    def resize(self, size, _tensors):
        self.tensor = torch.zeros(int(size) // 4)
        array = self.tensor.numpy()
        self.take(array, array)
        self.say('ok')

    def take(self, array, result):
        """Sets the memory of the gradient and of its sum."""
        self.array, self.result = array, result
        self.stamps = array[::PERIOD]
        self.places = numpy.arange(len(self.stamps))

    def round(self):
        distributed.all_reduce(self.tensor)

    def run(self, rounds, first, pause_us):
        rounds, first, pause_s = int(rounds), int(first), int(pause_us) / 1e6
        self.fill()
        stamps = [values(self.places, self.rank, first + i) for i in range(rounds)]
        times = [0] * rounds
        self.say('ready')
        self.lines.readline()
        start, cpu = time.monotonic_ns(), time.process_time_ns()
        for i in range(rounds):
            if pause_s:
                time.sleep(pause_s)
            self.stamps[:] = stamps[i]
            began = time.monotonic_ns()
            self.round()
            times[i] = time.monotonic_ns() - began
        cpu, elapsed = time.process_time_ns() - cpu, time.monotonic_ns() - start
        self.first, self.rounds = first, rounds
        self.say(f'done {cpu} {elapsed} ' + ' '.join(map(str, times)))

    def check(self):
        elements = len(self.array)
        period = sums(numpy.arange(min(PERIOD, elements)), self.workers, 0)
        if self.result is self.array:
            period *= numpy.float32(float(self.workers) ** (self.rounds - 1))
        wrong = 0
        for start in range(0, elements, PERIOD):
            part = self.result[start + 1:start + PERIOD]
            wrong += int(numpy.count_nonzero(part != period[1:len(part) + 1]))
        last = sums(self.places, self.workers, self.first + self.rounds - 1)
        wrong += int(numpy.count_nonzero(self.result[::PERIOD] != last))
        self.say(f'wrong {wrong}')

    def obey(self):
        for line in self.lines:
            word, *numbers = line.split()
            if word == 'quit':
                return
            {'size': self.resize, 'run': self.run, 'check': self.check}[word](*numbers)


def bind(rank):
    """Binds the process to a core, as process_bind() of bench/lib/host.c does."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[(rank + 1) % len(cores)]})


def join_gloo(rank, workers, store):
    torch.set_num_threads(1)
    os.environ['GLOO_SOCKET_IFNAME'] = 'lo'
    distributed.init_process_group('gloo', init_method=f'file://{store}', rank=rank,
                                   world_size=workers)


def work(address, rank, workers, store):
    bind(rank)
    join_gloo(rank, workers, store)
    Seat(address, rank, workers).obey()


def fork_all(workers, function):
    """Runs function(rank, store) in one process for each rank, and exits with their exit code."""
    with tempfile.TemporaryDirectory(prefix='gradpool-bench-') as folder:
        ranks = []
        for rank in range(workers):
            ranks.append(os.fork())
            if ranks[-1] == 0:
                function(rank, os.path.join(folder, 'store'))
                os._exit(0)
        codes = [os.waitpid(pid, 0)[1] for pid in ranks]
    sys.exit(any(codes))


def main():
    address, workers = sys.argv[1], int(sys.argv[2])
    fork_all(workers, lambda rank, store: work(address, rank, workers, store))


if __name__ == '__main__':
    main()
