"""A worker program with DistributedDataParallel: all ranks, one process each, with gloo or with
gradpool.

Usage: ddp_worker.py ADDRESS WORKERS gloo|gradpool JOB

Uses the protocol of bench/compare/seat.h. The size of the gradients selects the model. Only
attach() differs between the two systems. A step is the body of a training loop."""
import copy
import os
import sys
import time

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gloo_worker import fork_all, join_gloo, Seat

BATCHES = 8         # batches of each rank, used one after the other
CLASSES = 10
PICTURE = 28


def mlp():
    wide = 2048
    return nn.Sequential(nn.Linear(1024, wide), nn.ReLU(), nn.Linear(wide, wide), nn.ReLU(),
                         nn.Linear(wide, wide), nn.ReLU(), nn.Linear(wide, CLASSES)), (1024,)


def cnn():
    return nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(64 * (PICTURE // 4) ** 2, 324), nn.ReLU(),
                         nn.Linear(324, CLASSES)), (1, PICTURE, PICTURE)


# Models with batch sizes. The batches are small, so that aggregation is a large part of a step.
MODELS = {40 << 20: (mlp, 4), 4 << 20: (cnn, 8)}


def batches(rank, shape):
    """Returns the training data of a rank. Every rank can also compute the data of the others."""
    generator = torch.Generator().manual_seed(1000 + rank)
    return [(torch.randn(*shape, generator=generator),
             torch.randint(CLASSES, shape[:1], generator=generator)) for _ in range(BATCHES)]


class Trainer(Seat):
    def __init__(self, address, rank, workers, is_ours):
        super().__init__(address, rank, workers)
        self.is_ours, self.attachment = is_ours, None
        self.net = self.model = self.optimizer = self.data = self.shape = None

    def let_go(self):
        if self.attachment is not None:
            self.attachment.close()

    def resize(self, size, _tensors):
        self.let_go()
        torch.manual_seed(1)
        make, batch = MODELS[int(size)]
        self.net, shape = make()
        self.shape = (batch, *shape)
        self.model = DistributedDataParallel(self.net)
        if self.is_ours:
            import gradpool.ddp
            self.attachment = gradpool.ddp.attach(self.model, prefix=f'{size}/')
        self.optimizer = torch.optim.SGD(self.net.parameters(), 0.01, momentum=0.9)
        self.data = batches(self.rank, self.shape)
        self.say('ok')

    @staticmethod
    def derive(model, batch):
        nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()

    def step(self, number):
        self.optimizer.zero_grad()
        self.derive(self.model, self.data[number % BATCHES])
        self.optimizer.step()

    def run(self, rounds, first, _pause_us):
        rounds, first = int(rounds), int(first)
        times = [0] * rounds
        self.say('ready')
        self.lines.readline()
        start, cpu = time.monotonic_ns(), time.process_time_ns()
        for i in range(rounds):
            began = time.monotonic_ns()
            self.step(first + i)
            times[i] = time.monotonic_ns() - began
        cpu, elapsed = time.process_time_ns() - cpu, time.monotonic_ns() - start
        self.first = first
        self.say(f'done {cpu} {elapsed} ' + ' '.join(map(str, times)))

    def check(self):
        """Compares one more gradient with the mean of all ranks' gradients, at this rank's
        parameters. So parameters that differ between ranks count as wrong, too."""
        number = self.first % BATCHES
        self.optimizer.zero_grad()
        self.derive(self.model, self.data[number])
        means = self.means(number)
        wrong = sum(int((parameter.grad != mean).sum())
                    for parameter, mean in zip(self.net.parameters(), means))
        self.say(f'wrong {wrong}')

    def means(self, number):
        """Returns the mean of each gradient. With two ranks both systems compute these bits,
        although gloo's DDP divides before the sum."""
        total = None
        for rank in range(self.workers):
            twin = copy.deepcopy(self.net)
            twin.zero_grad(set_to_none=True)
            self.derive(twin, batches(rank, self.shape)[number])
            found = [parameter.grad / self.workers for parameter in twin.parameters()]
            total = found if total is None else [a + b for a, b in zip(total, found)]
        return total


def work(address, rank, workers, is_ours, store):
    join_gloo(rank, workers, store)
    trainer = Trainer(address, rank, workers, is_ours)
    trainer.obey()
    trainer.let_go()


def main():
    address, workers, system, os.environ['GRADPOOL_JOB'] = sys.argv[1:]
    fork_all(int(workers), lambda rank, store: work(address, rank, int(workers),
                                                    system == 'gradpool', store))


if __name__ == '__main__':
    main()
