#!/usr/bin/python3
"""Compares the packer with an exact solver. Prints TAP.

Usage: test_packer_exact.py PACKER_CASES [COUNT]

PACKER_CASES fills small fleets with policy `shared`. This program has its own version of the rule,
as plain polynomials. HiGHS (scipy's milp) finds the smallest number of lanes: it covers all tasks
with the largest sets that fit on one lane. Loss and memory only grow with more tasks, so the result
is exact."""
import itertools
import os
import subprocess
import sys
import time

import numpy
from scipy.optimize import Bounds, LinearConstraint, milp

CASES = 200
RATIO_MAX = 1.15
MARGIN = 0.01
ROUNDING = 2e-6


class Case:
    def __init__(self, memory_bytes):
        self.memory_bytes = memory_bytes
        self.jobs = {}   # key: job; values: period, limit
        self.tasks = []  # job, lane time, bytes, lane

    def lanes(self):
        """Returns the packer's result: the tasks of each lane."""
        lanes = {}
        for number, task in enumerate(self.tasks):
            lanes.setdefault(task[3], []).append(number)
        return lanes

    def carries(self, numbers):
        """Returns whether these tasks fit on one lane."""
        if sum(self.tasks[n][2] for n in numbers) > self.memory_bytes:
            return False
        lane_ns = {}
        for n in numbers:
            job, ns = self.tasks[n][:2]
            lane_ns[job] = lane_ns.get(job, 0) + ns
        margin = MARGIN if len(lane_ns) > 1 else 0
        alone = {job: max(self.jobs[job][0], ns) for job, ns in lane_ns.items()}
        shares = {job: ns / alone[job] for job, ns in lane_ns.items()}
        total = weigh(shares.values())
        for job in shares:
            period, limit = self.jobs[job]
            others = weigh(u for j, u in shares.items() if j != job)
            if 1 - period / alone[job] * others / total + margin > limit + ROUNDING:
                return False
        return True


def weigh(shares):
    """Returns the sum of k! c_k of the product of (1-u) + u x."""
    row = [1.0]
    for u in shares:
        row = [(1 - u) * a + u * k * b for k, (a, b) in enumerate(zip(row + [0.0], [0.0] + row))]
    return sum(row)


def largest_sets(case):
    """Returns the sets of tasks that fit on a lane and are not part of another such set."""
    everything = range(len(case.tasks))
    kept = []
    for size in range(len(case.tasks), 0, -1):
        for numbers in itertools.combinations(everything, size):
            chosen = frozenset(numbers)
            if not any(chosen <= other for other in kept) and case.carries(numbers):
                kept.append(chosen)
    return kept


def fewest_lanes(case):
    sets = largest_sets(case)
    holds = numpy.array([[float(t in s) for s in sets] for t in range(len(case.tasks))])
    result = milp(numpy.ones(len(sets)), integrality=numpy.ones(len(sets)), bounds=Bounds(0, 1),
                  constraints=LinearConstraint(holds, lb=1))
    if not result.success:
        raise RuntimeError(result.message)
    return round(result.fun)


def read_cases(text):
    cases = []
    for line in text.splitlines():
        kind, *numbers = line.split()
        numbers = [int(n) for n in numbers]
        if kind == 'case':
            cases.append(Case(numbers[0]))
        elif kind == 'job':
            cases[-1].jobs[numbers[0]] = (numbers[1], numbers[2] / 1e6)
        else:
            cases[-1].tasks.append(tuple(numbers))
    return cases


def report(number, passed, name):
    print(f'{"ok" if passed else "not ok"} {number} - {name}')
    return passed


def main(program, count=CASES):
    seed, count = int(os.environ.get('GRADPOOL_TEST_SEED') or time.time()), int(count)
    print(f'1..3\n# GRADPOOL_TEST_SEED={seed}')
    command = [program, str(seed), str(count)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    cases = read_cases(text)
    enough = len(cases) == count and all(len(c.tasks) >= 6 for c in cases)
    passed = report(1, enough, f'there are {count} cases of at least 6 tasks')
    bad = [c for c in cases if not all(c.carries(numbers) for numbers in c.lanes().values())]
    passed &= report(2, not bad, 'every lane of every plan is within the limits')
    used = [len(c.lanes()) for c in cases]
    fewest = [fewest_lanes(c) for c in cases]
    ratio = sum(u / f for u, f in zip(used, fewest)) / len(cases)
    worst = max(u / f for u, f in zip(used, fewest))
    passed &= report(3, ratio <= RATIO_MAX and min(u - f for u, f in zip(used, fewest)) >= 0,
                     f'the packer uses at most {RATIO_MAX} x the fewest lanes on average')
    optimal = sum(u == f for u, f in zip(used, fewest))
    print(f'# lanes {sum(used)}, fewest {sum(fewest)}; mean ratio {ratio:.3f}, worst {worst:.2f}, '
          f'{optimal} of {count} optimal')
    return 0 if passed else 1


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
