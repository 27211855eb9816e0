#!/usr/bin/python3
"""One worker of a job of the demo: an ordinary DDP script with one line of gradpool in it.

run.py starts the worker with rank, size, job and endpoint in the environment. The worker reports
its progress in JSON lines on standard output. A line on standard input starts the training. Each
further line continues the training after a step of --hold."""
import argparse
import itertools
import json
import os
import sys
import time

import numpy
import torch
import torch.distributed

import gradpool
import training

REPORT_EVERY = 20


def say(event, **values):
    print(json.dumps({'event': event, **values}), flush=True)


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('kind', choices=training.TRAININGS)
    parser.add_argument('--data', required=True)
    parser.add_argument('--store', required=True, help='file where the ranks meet')
    parser.add_argument('--steps', type=int, required=True)
    parser.add_argument('--hold', type=int, action='append', default=[], metavar='STEP')
    parser.add_argument('--result', required=True, help='file for parameters and step times')
    return parser.parse_args()


def train(model, optimizer, batches, steps, holds):
    """Trains. Returns the end time of each step in seconds of the host's monotonic clock, without
    the time of holds."""
    ended_s, held_s = [], 0
    for step, batch in enumerate(itertools.islice(batches, steps), 1):
        optimizer.zero_grad(set_to_none=True)
        training.backward(model, batch)
        optimizer.step()
        ended_s.append(time.monotonic() - held_s)
        if step % REPORT_EVERY == 0 or step == steps:
            say('step', step=step)
        if step in holds:
            began_s = time.monotonic()
            sys.stdin.readline()
            held_s += time.monotonic() - began_s
    return ended_s


def main():
    options = parse()
    rank, workers = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])
    net, optimizer = training.start(options.kind)
    data = training.Data(options.data, options.kind)
    torch.distributed.init_process_group('gloo', init_method='file://' + options.store,
                                         rank=rank, world_size=workers)
    model = torch.nn.parallel.DistributedDataParallel(net, broadcast_buffers=False)
    attachment = gradpool.ddp.attach(model)
    say('ready')
    if not sys.stdin.readline():
        return 1
    try:
        ended_s = train(model, optimizer, data.batches(rank, workers), options.steps,
                        options.hold)
    except RuntimeError:
        # backward() can only raise a RuntimeError; check() raises the service's own error
        attachment.check()
        raise
    numpy.savez(options.result, parameters=training.flatten(net), ended_s=ended_s)
    say('done', accuracy=data.accuracy(net), digest=training.digest(net))
    return 0


def run():
    """Runs main(). If the service ends, the script gets an exception, which is printed here."""
    try:
        return main()
    except gradpool.GradpoolError as error:
        say('failed', kind=type(error).__name__, text=str(error))
        return 3


if __name__ == '__main__':
    sys.exit(run())
