"""join(): a rank without further batches stays in the job and adds nothing.

The rank continues with the operations on which the ranks have agreed so far. Each time it gives
neutral values (zeros in a sum, no rows in a gathering). It always has one round of each operation
open, so that other ranks never wait for it. When all ranks have joined, they stop, exchange the
numbers of rounds that they have begun, and begin the missing rounds."""
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
    """Returns the call with that text that other ranks make, without values from this rank."""
    call = recipe(ranks)
    call.text, call.neutral = text, functools.partial(_begun_by, recipe, ranks, text)
    return call


class _Rounds:
    """The operations with which a joined rank continues."""

    def __init__(self, ranks):
        self._plans = {(sequence.name, text): (sequence, plan) for sequence in ranks.all()
                       for text, plan in sequence.plans.items() if plan.neutral}
        self._ranks, self._open, self._asked = ranks, {}, {}

    def counts(self):
        """Returns the number of rounds begun of each operation, including a queued round."""
        with operations.lock():
            return {key: self._count(key) for key in self._plans}

    def _count(self, key):
        operation = self._open.get(key)
        is_queued = operation is not None and not operation.has_begun()
        return self._plans[key][1].rounds + is_queued

    def go_on(self, until=None):
        """Begins a round of each operation without an open round. Operations that already have the
        number of rounds in `until` are left out."""
        for key in self._free():
            sequence, plan = self._plans[key]
            if until is None or plan.rounds < until.get(key, 0):
                self._open[key] = NamedOperation(sequence, plan.neutral(), True).start()

    def answer(self, calls):
        """Begins once each operation in which other ranks wait and which this rank does not
        know."""
        for name, is_given, number, text, recipe in calls:
            sequence = self._ranks.known_as(name, is_given)
            if number == sequence.said + 1:
                call = _begun_by(recipe, self._ranks, text)
                self._asked[name, text] = sequence
                self._open[name, text] = NamedOperation(sequence, call).start()

    def _learn(self, key):
        """Adds an operation that was begun for other ranks to the known ones."""
        sequence = self._asked.pop(key, None)
        if sequence is not None and key[1] in sequence.plans:
            self._plans[key] = sequence, sequence.plans[key[1]]

    def _free(self):
        """Returns the operations without an open round. Gatherings of rows without a name are
        queued and end in the order in which they began. Checking the newest first and beginning the
        oldest first keeps the same order on all ranks."""
        over = [key for key in reversed(list(self._open)) if self._open[key].look()]
        for key in over:
            self._open.pop(key).wait()      # raises the operation's error
            self._learn(key)
        others = [key for key in self._plans if key not in self._open and key not in over]
        return others + [key for key in over[::-1] if key in self._plans]

    def rest(self):
        """Waits briefly for an open operation. False: no operation is open."""
        return any(operation.rest(_SLICE_MS) for operation in list(self._open.values()))

    def raise_cause(self):
        """Raises another error of an open operation after the loss of a rank, if there is one. All
        operations end soon. A rank that gets a disagreement leaves with that error, and ranks that
        have not checked yet get the loss of that rank first."""
        for operation in self._open.values():
            with contextlib.suppress(PeerLost):
                operation.wait()

    def end(self, every):
        """Begins the missing rounds after all ranks have stopped with these counts. An
        operation that was begun for others may become known only here, and then only others have
        counted it."""
        until = {key: max(counts.get(key, 0) for counts in every) for key in set().union(*every)}
        self.go_on(until)
        while self._open:
            self.rest()
            self.go_on(until)


def join(device=-1):
    """Returns when all ranks have called join(). The result is the rank with the most rounds, or
    the highest of these ranks. Until then this rank takes part in the operations of the others with
    neutral values, also in an Average, which is over all ranks. This holds for allreduce, allgather
    and barrier, under known or new names. Another operation raises an error that names this rank.

      device  ignored"""
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
    """Takes part until all ranks have joined, when `done` is over."""
    while not poll(done):
        rounds.go_on()
        for ranks in sets:
            calls = ranks.joined.calls()
            if ranks is global_process_set.sequences():
                rounds.answer(calls)
        if not rounds.rest():
            done.rest(_SLICE_MS)
    done.wait()
