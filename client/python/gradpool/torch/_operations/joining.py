"""join(): a rank that has no more batches stays in the job and takes no part.

It goes on with the operations that the ranks have agreed on so far, each time with what changes
nothing (zeros in a sum, no rows in a gathering), always one round of each, so that others never
wait for it. When all have joined they stop, tell each other how many rounds of each they have
begun, and make up for what the others have more."""
import contextlib
import functools

from ..._group import operations
from ...errors import PeerLost
from .._door import door
from ..process_sets import global_process_set
from .handles import poll
from .objects import gather_async
from .sequences import NamedOperation

_SLICE_MS = 2


def _begun_by(recipe, ranks, text):
    """The call that other ranks make by that text, without a part of this one."""
    call = recipe(ranks)
    call.text, call.neutral = text, functools.partial(_begun_by, recipe, ranks, text)
    return call


class _Rounds:
    """The operations that a rank which has joined goes on with."""

    def __init__(self, ranks):
        self._plans = {(sequence.name, text): (sequence, plan) for sequence in ranks.all()
                       for text, plan in sequence.plans.items() if plan.neutral}
        self._ranks, self._open, self._asked = ranks, {}, {}

    def counts(self):
        """Of each, with the one that still waits for its turn."""
        with operations.lock():
            return {key: self._count(key) for key in self._plans}

    def _count(self, key):
        operation = self._open.get(key)
        is_queued = operation is not None and not operation.has_begun()
        return self._plans[key][1].rounds + is_queued

    def go_on(self, until=None):
        """Begins a round of each that has none open, unless it has as many as `until` says."""
        for key in self._free():
            sequence, plan = self._plans[key]
            if until is None or plan.rounds < until.get(key, 0):
                self._open[key] = NamedOperation(sequence, plan.neutral(), True).start()

    def answer(self, calls):
        """Begins what other ranks wait in and this one does not know, once."""
        for name, is_given, number, text, recipe in calls:
            sequence = self._ranks.known_as(name, is_given)
            if number == sequence.said + 1:
                call = _begun_by(recipe, self._ranks, text)
                self._asked[name, text] = sequence
                self._open[name, text] = NamedOperation(sequence, call).start()

    def _learn(self, key):
        """Adds an operation that was begun for others to those that are known."""
        sequence = self._asked.pop(key, None)
        if sequence is not None and key[1] in sequence.plans:
            self._plans[key] = sequence, sequence.plans[key[1]]

    def _free(self):
        """Those that have none open. Rows that travel without a name wait for their turn, and are
        over in the order in which they were begun: who looks at the newest first and begins the
        oldest first goes round in the same order as all other ranks."""
        over = [key for key in reversed(list(self._open)) if self._open[key].look()]
        for key in over:
            self._open.pop(key).wait()      # raises what went wrong
            self._learn(key)
        others = [key for key in self._plans if key not in self._open and key not in over]
        return others + [key for key in over[::-1] if key in self._plans]

    def rest(self):
        """A little, in the wait of one that is open. Whether there was one."""
        return any(operation.rest(_SLICE_MS) for operation in list(self._open.values()))

    def raise_cause(self):
        """After the loss of a rank: raises what an open operation says, if anything else. All of
        them end soon. A rank that is told of a disagreement leaves with the error, and those that
        have not looked yet are told of that rank elsewhere first."""
        for operation in self._open.values():
            with contextlib.suppress(PeerLost):
                operation.wait()

    def end(self, every):
        """All ranks have stopped, with these counts. What was begun for others may be learnt only
        here, so that others alone have counted it."""
        until = {key: max(counts.get(key, 0) for counts in every) for key in set().union(*every)}
        self.go_on(until)
        while self._open:
            self.rest()
            self.go_on(until)


def join(device=-1):
    """Returns when all ranks have called it: the rank that has done the most, the highest of those.
    Until then this one takes part in what the others do, with nothing of its own: in an Average,
    too, which is over all ranks. That holds for allreduce, allgather and barrier, as they were
    called before or under a new name; all else raises an error there that names this rank.

    device  not looked at"""
    ranks = global_process_set.sequences()
    for operation in door().open():
        operation.wait()
    rounds, sets = _Rounds(ranks), [of.sequences() for of in door().sets if of and of.included()]
    done = gather_async(sum(rounds.counts().values()), '(join)', global_process_set)
    try:
        _take_part(rounds, done, sets)
    except PeerLost:
        rounds.raise_cause()
        raise
    rounds.end(gather_async(rounds.counts(), '(joined)', global_process_set).wait())
    door().joins += 1
    done = done.wait()
    return max(range(len(done)), key=lambda rank: (done[rank], rank))


def _take_part(rounds, done, sets):
    """Until all have joined, so that `done` is over."""
    while not poll(done):
        rounds.go_on()
        for ranks in sets:
            calls = ranks.joined.calls()
            if ranks is global_process_set.sequences():
                rounds.answer(calls)
        if not rounds.rest():
            done.rest(_SLICE_MS)
    done.wait()
