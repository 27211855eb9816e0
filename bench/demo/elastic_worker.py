#!/usr/bin/python3
"""One worker of the elastic job of the demo: a script that uses gradpool.elastic.Run.

`python3 -m gradpool.elastic` starts the workers. They print their progress in JSON lines, train
until the demo creates the file `stop`, and then write their shares of all steps and their
parameters."""
import argparse
import json
import os
import pathlib
import time

import numpy

import gradpool.elastic
import training

REPORT_EVERY = 20
EPOCHS_WITHOUT_END = 1000000
RANK = int(os.environ['RANK'])


def say(event, **values):
    """Writes a line in one call, because all workers write to one pipe."""
    os.write(1, (json.dumps({'event': event, 'rank': RANK, **values}) + '\n').encode())


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('kind', choices=training.TRAININGS)
    parser.add_argument('--data', required=True)
    parser.add_argument('--batch', type=int, required=True, help='samples of a step, all workers')
    parser.add_argument('--folder', type=pathlib.Path, required=True, help='for all files')
    return parser.parse_args()


class Log:
    """The steps of this worker, and the end time of each in seconds of the host's clock."""

    def __init__(self):
        self.steps, self.epochs, self.shares, self.ended_s = [], [], [], []

    def add(self, step):
        self.steps.append(step.number)
        self.epochs.append(step.epoch)
        self.shares.append(step.indices[:step.weight].numpy())
        self.ended_s.append(time.monotonic())
        if len(self.steps) == 1 or step.number % REPORT_EVERY == 0:
            say('step', step=step.number)

    def write(self, path, **values):
        numpy.savez(path, steps=self.steps, epochs=self.epochs, ended_s=self.ended_s,
                    weights=[len(share) for share in self.shares],
                    indices=numpy.concatenate(self.shares), **values)


def is_last(run, folder, epoch):
    """Returns whether the training is over. Workers differ by one step at most, so the first worker
    can choose a last epoch that no worker has reached."""
    end = folder / 'end'
    if run.is_first and (folder / 'stop').exists() and not end.exists():
        (folder / 'new').write_text(str(epoch + 2))
        (folder / 'new').rename(end)
    return end.exists() and int(end.read_text()) <= epoch


def train(run, net, optimizer, data, folder):
    log = Log()
    for epoch in run.epochs():
        if is_last(run, folder, epoch):
            break
        for step in run:
            optimizer.zero_grad(set_to_none=True)
            training.backward(net, data.at(step.indices))
            optimizer.step()
            log.add(step)
    run.close()
    return log


def main():
    options = parse()
    net, optimizer = training.start(options.kind)
    data = training.Data(options.data, options.kind)
    run = gradpool.elastic.Run(net, optimizer, samples=data.trained, batch=options.batch,
                               epochs=EPOCHS_WITHOUT_END)
    run.on_change(lambda workers: say('workers', workers=workers))
    log = train(run, net, optimizer, data, options.folder)
    log.write(options.folder / f'rank-{RANK}.npz', parameters=training.flatten(net), rank=RANK)
    say('done', ending=run.ending, accuracy=data.accuracy(net))


if __name__ == '__main__':
    main()
