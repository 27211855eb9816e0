"""A worker program that pushes many named tensors from Python: all ranks, one process each.

Usage: names_worker.py ADDRESS WORKERS SYSTEM JOB

Uses the protocol of bench/compare/seat.h. A round is a push_pull() for each name, in the rank's own
order, then a wait() for each, as in a script."""
import random
import sys

import torch

import gradpool
from gloo_worker import bind, fork_all, Seat


class Named(Seat):
    def __init__(self, address, rank, workers, job):
        super().__init__(address, rank, workers)
        self.job = job
        self.items = []

    def resize(self, size, tensors):
        size, tensors = int(size) // 4, int(tensors)
        gradient, result = torch.zeros(size), torch.zeros(size)
        names = [f'{number}.elements.{size // tensors}' for number in range(tensors)]
        declared = self.job.declare_all(dict.fromkeys(names, size // tensors))
        self.items = list(zip(declared, gradient.split(size // tensors),
                              result.split(size // tensors)))
        random.Random(self.rank).shuffle(self.items)
        self.take(gradient.numpy(), result.numpy())
        self.say('ok')

    def round(self):
        requests = [self.job.push_pull(tensor, gradient, result, 'sum')
                    for tensor, gradient, result in self.items]
        for request in requests:
            request.wait()


def work(address, rank, workers, job):
    bind(rank)
    torch.set_num_threads(1)
    with gradpool.connect(transport='shm') as client:
        Named(address, rank, workers, client.join(job, rank, workers)).obey()


def main():
    address, workers, _, job = sys.argv[1:]
    fork_all(int(workers), lambda rank, _: work(address, rank, int(workers), job))


if __name__ == '__main__':
    main()
