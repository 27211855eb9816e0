"""Tests stages at the Python door against a real service: a training with wide and narrow stages has
the bits of one process; a border loses no push; wrong plans, deaths and departures are errors."""
import os
import signal
import tempfile
import unittest

import numpy

import harness
import ranks
import gradpool
from python_case import Case, setUpModule, tearDownModule  # noqa: F401

WORKERS, DIM, SAMPLES, BATCH = 4, 8, 96, 16
RATE = numpy.float32(0.25)    # a power of two
ENOUGH_MS = 60000


# ---- SVRG: a wide stage for the full gradient, then narrow ones ----

def samples():
    """Returns (samples, targets) of a linear regression whose sums have no rounding: small whole
    numbers times powers of two."""
    random = numpy.random.default_rng(7)
    data = random.integers(-2, 3, (SAMPLES, DIM)).astype(numpy.float32)
    truth = random.integers(-3, 4, DIM).astype(numpy.float32)
    return data, data @ truth


def slope(data, targets, weights, which):
    """Returns the summed gradient of the squared errors of some samples."""
    part = data[which]
    return (part.T @ (part @ weights - targets[which])).astype(numpy.float32)


def rounded(gradient):
    """Returns the gradient with few binary digits, so that sums in any grouping have equal bits."""
    return numpy.round(gradient / SAMPLES * 1024).astype(numpy.float32) / 1024


def parts(first, count, workers):
    """Returns the slices of all members, as Stage.steps() deals them."""
    return [slice(first + count * i // workers, first + count * (i + 1) // workers)
            for i in range(workers)]


def train_alone(plan, repeat):
    """The training of rank_svrg() in one process."""
    data, targets = samples()
    weights, full = numpy.zeros(DIM, numpy.float32), numpy.zeros(DIM, numpy.float32)
    for _ in range(repeat):
        for entry in plan:
            if entry['name'] == 'full':
                full = numpy.zeros(DIM, numpy.float32)
            for first in range(0, SAMPLES, BATCH):
                gradient = numpy.zeros(DIM, numpy.float32)
                for mine in parts(first, BATCH, entry['workers']):
                    gradient += rounded(slope(data, targets, weights, mine))
                if entry['name'] == 'full':
                    full -= gradient
                else:
                    weights -= RATE * (gradient - full / 64)
    return weights.tolist()


def svrg(job, plan, repeat):
    data, targets = samples()
    weights = job.table('weights', DIM, combine='sum')
    full = job.table('full', DIM, combine='sum')
    weights.set(float(RATE))
    full.set(1.0)
    seen = []
    for stage in job.stages(plan, repeat=repeat):
        seen.append([stage.name, stage.workers, stage.place])
        for step in stage.steps(SAMPLES, BATCH):
            row = weights.pull([0])[0]
            mine = rounded(slope(data, targets, row, step.mine))
            if stage.name == 'full':
                if step.number == 0 and stage.place == 0:
                    mine += full.pull([0])[0]        # forgets the former full gradient
                full.push([0], mine[None])
            else:
                whole = full.pull([0])[0] / 64 if stage.place == 0 else 0
                weights.push([0], (mine - whole)[None].astype(numpy.float32))
            job.clock()
    return weights.pull([0])[0].tolist(), seen


PLAN = [{'name': 'full', 'workers': WORKERS}, {'name': 'sgd', 'workers': 1, 'visit': 'travel'},
        {'name': 'pair', 'workers': 2}]


def rank_svrg(rank, workers):
    return svrg(gradpool.connect().join('svrg', rank, workers), PLAN, 3)


class Training(Case):
    def test_stages_have_the_bits_of_one_process(self):
        alone = train_alone(PLAN, 3)
        ended = ranks.run_ranks('rank_svrg', WORKERS)
        for weights, _ in ended:
            self.assertEqual(weights, alone)
        self.check_places([seen for _, seen in ended])

    def check_places(self, seen):
        names = [entry['name'] for entry in PLAN] * 3
        for stages in seen:
            self.assertEqual([name for name, _, _ in stages], names)
        for index, entry in enumerate(PLAN * 3):
            places = sorted(stages[index][2] for stages in seen if stages[index][2] is not None)
            self.assertEqual(places, list(range(entry['workers'])))
        travellers = [rank for index in (1, 4, 7) for rank in range(WORKERS)
                      if seen[rank][index][2] is not None]
        self.assertEqual(travellers, [0, 2, 3])


if __name__ == '__main__':
    ranks.main(globals())
