"""Values that the script reports about a step, such as its loss: for each value, the mean over the
samples of all workers that report it."""
import collections

import torch

from ..errors import mismatch

NAME = 'elastic/report'
# Means of a step: its number from 1, its epoch from 0, {metric: mean} without metrics that no
# worker has reported.
Report = collections.namedtuple('Report', ('number', 'epoch', 'values'))


class Reports:
    """Collects the values of this worker in a step. Each worker makes one round after each step:
    for each metric the sum of weight * value, and the sum of the weights.

      names  of the metrics, the same on all workers; none: there are no rounds"""

    def __init__(self, names):
        self.names = tuple(names)
        if isinstance(names, str) or len(set(self.names)) < len(self.names):
            raise mismatch(f'Run(reports={names!r}), expected a list of different names, such as '
                           "reports=['loss']")
        self._tensor, self._step, self._values = None, None, {}

    def declared(self):
        """Returns the tensor to declare with the deal, as {name: (elements, dtype)}."""
        return {NAME: (2 * len(self.names), 'float64')} if self.names else {}

    def begin(self, tensors, step):
        """Begins a step of this worker. `step`: the namedtuple that the script gets; None: the step
        of a late worker, which reports nothing."""
        self._tensor, self._step, self._values = tensors.get(NAME), step, {}

    def add(self, step, values):
        if step is not self._step:
            raise mismatch(f'report() in step {step.number} of Run, which has ended; report within '
                           'the body of the step')
        for name, value in values.items():
            if name not in self.names:
                raise mismatch(f"report() of '{name}', and Run() has reports={list(self.names)}; "
                               f"say Run(reports=[..., '{name}']) on all workers")
            if name in self._values:
                raise mismatch(f"report() of '{name}' a second time in step {step.number} of Run; "
                               'report one value, the mean over step.indices')
            self._values[name] = _number_of(name, value)

    def exchange(self, job, timeout_ms):
        """Makes the round of the step, on every worker. Returns {name: mean}."""
        if not self.names:
            return {}
        weight = self._step.weight if self._step is not None else 0
        sums = torch.zeros(len(self.names), 2, dtype=torch.float64)
        for name, value in self._values.items() if weight else ():
            sums[self.names.index(name), 0] = weight * value
            sums[self.names.index(name), 1] = weight
        self._step = None
        job.push_pull(self._tensor, sums, operation='sum').wait(timeout_ms)
        return {name: total / weights for name, (total, weights) in zip(self.names, sums.tolist())
                if weights}


def _number_of(name, value):
    try:
        return float(value.detach() if isinstance(value, torch.Tensor) else value)
    except (TypeError, ValueError, RuntimeError):
        raise mismatch(f"report() of '{name}' with {type(value).__name__}, expected one number; "
                       'report the mean over step.indices') from None
