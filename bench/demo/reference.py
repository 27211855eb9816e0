"""Repeats the training of a job in one process, without gradpool: the gradient of each rank's
batch, the mean of these gradients in rank order in float32, and a step of the same optimizer.
Compares the parameters of every worker with the result, bit by bit, and prints the differences as
one JSON line."""
import argparse
import json

import numpy
import torch

import training


def gradients(model, batch):
    """Returns one rank's gradients, copied from the model."""
    model.zero_grad(set_to_none=True)
    training.backward(model, batch)
    return [parameter.grad for parameter in model.parameters()]


def mean_in_rank_order(of_ranks, weights=None):
    """Returns for each parameter the mean: ((w0 g0 + w1 g1) + w2 g2) + ..., divided once by the sum
    of the weights. `weights` None: each weight is 1."""
    weights = weights or [1] * len(of_ranks)
    means = []
    for tensors in zip(*of_ranks):
        total = tensors[0] * weights[0]
        for tensor, weight in zip(tensors[1:], weights[1:]):
            total += tensor * weight
        means.append(total / torch.full_like(total, sum(weights)))
    return means


def train(kind, path, workers, steps):
    """Returns the parameters after `steps` steps as one float32 array."""
    model, optimizer = training.start(kind)
    data = training.Data(path, kind)
    batches = [data.batches(rank, workers) for rank in range(workers)]
    for _ in range(steps):
        means = mean_in_rank_order([gradients(model, next(shard)) for shard in batches])
        for parameter, mean in zip(model.parameters(), means):
            parameter.grad = mean
        optimizer.step()
    return training.flatten(model)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('kind', choices=training.TRAININGS)
    parser.add_argument('--data', required=True)
    parser.add_argument('--steps', type=int, required=True)
    parser.add_argument('results', nargs='+', help="one file of a worker's parameters a rank")
    options = parser.parse_args()
    expected = train(options.kind, options.data, len(options.results), options.steps)
    wrong = 0
    for path in options.results:
        found = numpy.load(path)['parameters']
        wrong += int((found.view(numpy.uint32) != expected.view(numpy.uint32)).sum())
    print(json.dumps({'event': 'compared', 'wrong': wrong,
                      'elements': expected.size * len(options.results)}), flush=True)


if __name__ == '__main__':
    main()
