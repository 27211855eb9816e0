"""join(): a rank that has no more batches stays in the job and takes no part.

It goes on with the operations that the ranks have agreed on so far, each time with what changes
nothing (zeros in a sum, no rows in a gathering), always one round of each, so that others never
wait for it. When the last rank has joined all have the same number of rounds but for that one: who
lacks it makes it."""
from ._door import door
from ._handles import poll
from ._objects import gather_async
from ._sequences import NamedOperation
from .process_sets import global_process_set

_SLICE_MS = 2


class _Rounds:
    """The operations that a rank which has joined goes on with."""

    def __init__(self, ranks):
        self._plans = {(sequence.name, text): (sequence, plan) for sequence in ranks.all()
                       for text, plan in sequence.plans.items() if plan.neutral}
        self._open = {}

    def counts(self):
        return {key: plan.rounds for key, (_, plan) in self._plans.items()}

    def go_on(self):
        """Begins a round of each that has none open. Whether one was begun."""
        free = [key for key in self._plans if key not in self._open or self._is_over(key)]
        for key in free:
            self._begin(key)
        return bool(free)

    def _begin(self, key):
        sequence, plan = self._plans[key]
        self._open[key] = NamedOperation(sequence, plan.neutral()).start()

    def _is_over(self, key):
        operation = self._open[key]
        if not operation.look():
            return False
        operation.wait()    # raises what went wrong
        return True

    def rest(self):
        """A little, in the wait of one that is open."""
        return any(operation.rest(_SLICE_MS) for operation in self._open.values())

    def end(self, every):
        """All ranks have joined, with these counts: the last round of each."""
        for key, (_, plan) in self._plans.items():
            if plan.rounds <= max(counts.get(key, 0) for counts in every):
                if key in self._open:
                    self._open[key].wait()
                self._begin(key)
        for operation in self._open.values():
            operation.wait()


def join(device=-1):
    """Returns when all ranks have called it: the rank that was the last one, or of those that did
    the most the highest. Until then this one takes part in what the others do, with nothing of its
    own: in an Average, too, which is over all ranks. That holds for allreduce, allgather and
    barrier, as they were called before; others wait for this rank.

    device  not looked at"""
    ranks = global_process_set.sequences()
    for operation in door().open():
        operation.wait()
    rounds = _Rounds(ranks)
    counts = rounds.counts()
    handle = gather_async(counts, 'join', global_process_set)
    while not poll(handle):
        if not rounds.go_on() and not rounds.rest():
            handle.rest(_SLICE_MS)
    every = handle.wait()
    rounds.end(every)
    done = [sum(of.values()) for of in every]
    return max(range(len(done)), key=lambda rank: (done[rank], rank))
