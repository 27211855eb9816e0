#!/usr/bin/python3
"""Measures the items per second of a training with random data and Horovod's calls.

Only the import belongs to gradpool. The flags are those of the synthetic benchmarks of Horovod and
BytePS:

    gradpool serve &
    gradpool run --workers 2 --endpoint gradpool://127.0.0.1:7077 python3 synthetic.py --model cnn

Trains on the GPU of the process's local rank, if the host has one. For a comparison without
exchange of gradients, run the script with `--workers 1`."""
import argparse
import statistics
import time

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import gradpool.torch as hvd

CLASSES = 100
SIGMAS = 1.96  # 95 % of a normal distribution are within this many standard deviations of its mean


def make_mlp():
    """Returns a model with 453,220 parameters in 4 tensors, one of them large; items have 784
    numbers."""
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, CLASSES))


def make_cnn():
    """Returns a model with 67,188 parameters in 14 small tensors; items are images of 3 by 32 by
    32."""
    def block(inputs, outputs):
        return (nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs),
                nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(*block(3, 16), *block(16, 32), *block(32, 64), *block(64, 64),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES))


MODELS = {'mlp': (make_mlp, (784,)), 'cnn': (make_cnn, (3, 32, 32))}


def count(text):
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f'{text}, expected 1 or more')
    return int(text)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0],
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument('--model', choices=MODELS, default='cnn')
    parser.add_argument('--batch-size', type=count, default=32, help='items a rank and batch')
    parser.add_argument('--num-warmup-batches', type=int, default=10,
                        help='batches before anything is measured')
    parser.add_argument('--num-batches-per-iter', type=count, default=10,
                        help='batches of one measurement')
    parser.add_argument('--num-iters', type=count, default=10, help='measurements')
    parser.add_argument('--fp16-allreduce', action='store_true',
                        help='gradients travel as halves')
    parser.add_argument('--no-cuda', action='store_true', help='leave GPUs alone')
    return parser.parse_args()


def pick_device(is_cuda_wanted):
    if not is_cuda_wanted or not torch.cuda.is_available():
        return torch.device('cpu')
    return torch.device('cuda', hvd.local_rank() % torch.cuda.device_count())


def make_step(options, device):
    """Returns a function that trains on one batch, and returns when the batch is done."""
    make_model, shape = MODELS[options.model]
    model = make_model().to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    compression = hvd.Compression.fp16 if options.fp16_allreduce else hvd.Compression.none
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(),
                                         compression=compression)
    items = torch.randn(options.batch_size, *shape, device=device)
    classes = torch.randint(CLASSES, (options.batch_size,), device=device)

    def step():
        optimizer.zero_grad()
        cross_entropy(model(items), classes).backward()
        optimizer.step()
        if device.type == 'cuda':
            torch.cuda.synchronize(device)  # the time of running kernels counts, too
    return step


def measure(step, batches, batch_size):
    """Returns the number of items per second."""
    started_s = time.perf_counter()
    for _ in range(batches):
        step()
    return batches * batch_size / (time.perf_counter() - started_s)


def say(text):
    if hvd.rank() == 0:
        print(text, flush=True)


def tell(rates, workers, device):
    """Prints mean and spread of rank 0, and the rate of all ranks, which have equal step times."""
    mean, spread = statistics.mean(rates), SIGMAS * statistics.pstdev(rates)
    say(f'items/s per {device.type} worker: {mean:.1f} +- {spread:.1f}')
    say(f'items/s of {workers} worker(s): {workers * mean:.1f} +- {workers * spread:.1f}')


def main():
    options = parse()
    hvd.init()
    device = pick_device(not options.no_cuda)
    say(f'model {options.model}, {options.batch_size} items a batch, {hvd.size()} worker(s) on '
        f'{device.type}')
    step = make_step(options, device)
    for _ in range(options.num_warmup_batches):
        step()
    rates = []
    for number in range(1, options.num_iters + 1):
        rates.append(measure(step, options.num_batches_per_iter, options.batch_size))
        say(f'iteration {number}: {rates[-1]:.1f} items/s per worker')
    tell(rates, hvd.size(), device)


if __name__ == '__main__':
    main()
