"""A worker program that trains a model of very many small parameters: all ranks, one process each.

Usage: parameters_worker.py ADDRESS WORKERS alone|gloo|attach|horovod JOB

Uses the protocol of bench/compare/seat.h. The gradient of each element is the rank + 1."""
import os
import sys

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddp_worker import Trainer
from gloo_worker import fork_all, join_gloo

ELEMENTS = 8
RATE = 2.0 ** -14       # a power of two: every parameter is exact in float32


class Many(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.all = nn.ParameterList(nn.Parameter(torch.ones(ELEMENTS)) for _ in range(count))

    def forward(self):
        return torch.stack(list(self.all)).sum()


class Stepper(Trainer):
    def __init__(self, address, rank, workers, door):
        super().__init__(address, rank, workers, door == 'attach')
        self.door, self.steps = door, 0

    def resize(self, _size, tensors):
        self.net = self.model = Many(int(tensors))
        self.optimizer = torch.optim.SGD(self.net.parameters(), RATE)
        if self.door in ('gloo', 'attach'):
            self.model = DistributedDataParallel(self.net)
        if self.door == 'attach':
            import gradpool.ddp
            self.attachment = gradpool.ddp.attach(self.model)
        if self.door == 'horovod':
            import gradpool.torch as horovod
            horovod.init()
            self.optimizer = horovod.DistributedOptimizer(self.optimizer,
                                                          self.net.named_parameters())
        self.say('ok')

    def step(self, _number):
        self.steps += 1
        self.optimizer.zero_grad()
        (self.model() * (self.rank + 1)).backward()
        self.optimizer.step()

    def check(self):
        """Compares every parameter with the value after all steps so far."""
        mean = self.rank + 1 if self.door == 'alone' else (self.workers + 1) / 2
        found = torch.stack(list(self.net.all))
        self.say(f'wrong {int((found != 1 - self.steps * RATE * mean).sum())}')


def work(rank, store, address, workers, door):
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(workers))
    if door in ('gloo', 'attach'):
        join_gloo(rank, workers, store)
    stepper = Stepper(address, rank, workers, door)
    stepper.obey()
    stepper.let_go()


def main():
    address, workers, door, os.environ['GRADPOOL_JOB'] = sys.argv[1:]
    fork_all(int(workers), lambda rank, store: work(rank, store, address, int(workers), door))


if __name__ == '__main__':
    main()
