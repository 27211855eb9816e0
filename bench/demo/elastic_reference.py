"""Repeats the training of the elastic job in one process, without gradpool: computes the gradients
of all shares of each step, their weighted mean in rank order, and a step of the same optimizer.
Compares the parameters of every worker after its last step, bit by bit, and counts the samples of
each epoch. Prints one JSON line."""
import argparse
import collections
import json
import math

import numpy

import reference
import training


def shares_of(path):
    """Yields (step, rank, epoch, indices) of the shares in the file of one worker."""
    log = numpy.load(path)
    ends = numpy.cumsum(log['weights'])
    for step, epoch, begin, end in zip(log['steps'], log['epochs'], ends - log['weights'], ends):
        if end > begin:
            yield int(step), int(log['rank']), int(epoch), log['indices'][begin:end]


def count(shares, samples):
    """Returns (epochs, samples without a step in their epoch, samples with several steps in their
    epoch)."""
    of_epochs = collections.defaultdict(lambda: numpy.zeros(samples, int))
    for _, _, epoch, indices in shares:
        numpy.add.at(of_epochs[epoch], indices, 1)
    uses = numpy.stack(list(of_epochs.values()))
    return len(uses), int((uses == 0).sum()), int((uses > 1).sum())


def steps_of(shares):
    """Yields (step, [indices of each share in rank order]). Shares are sorted."""
    by_step = collections.defaultdict(list)
    for step, _, _, indices in shares:
        by_step[step].append(indices)
    yield from by_step.items()


def compare(net, optimizer, data, shares, results):
    """Trains. Returns the number of wrong and of compared elements."""
    wrong = elements = 0
    for step, indices in steps_of(shares):
        weights = [len(share) for share in indices]
        divisor = math.gcd(*weights)    # the service also divides the weights by this number
        means = reference.mean_in_rank_order(
            [reference.gradients(net, data.at(share)) for share in indices],
            [weight // divisor for weight in weights])
        for parameter, mean in zip(net.parameters(), means):
            parameter.grad = mean
        optimizer.step()
        for result in results:
            if result['steps'][-1] == step:
                found, expected = result['parameters'], training.flatten(net)
                wrong += int((found.view(numpy.uint32) != expected.view(numpy.uint32)).sum())
                elements += expected.size
    return wrong, elements


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('kind', choices=training.TRAININGS)
    parser.add_argument('--data', required=True)
    parser.add_argument('results', nargs='+', help='one file a worker')
    options = parser.parse_args()
    data = training.Data(options.data, options.kind)
    shares = sorted((share for path in options.results for share in shares_of(path)),
                    key=lambda share: share[:2])
    epochs, lost, doubled = count(shares, data.trained)
    wrong, elements = compare(*training.start(options.kind), data, shares,
                              [dict(numpy.load(path)) for path in options.results])
    print(json.dumps({'event': 'compared', 'wrong': wrong, 'elements': elements,
                      'steps': shares[-1][0], 'epochs': epochs, 'lost': lost,
                      'doubled': doubled}), flush=True)


if __name__ == '__main__':
    main()
