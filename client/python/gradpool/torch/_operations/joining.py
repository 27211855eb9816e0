"""join(): a rank without further batches stays in the job, and its values do not change results.

The rank continues with all operations on which the ranks have agreed so far, with neutral values:
zeros in a sum, no rows in a gathering. The rank always has one open round of each operation,
so that other ranks never wait for this rank. When all ranks are in join(), they stop and exchange
the numbers of their begun rounds. Then each rank begins its missing rounds."""
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
    """Returns the call that belongs to a recipe of another rank, without values from this rank."""
    call = recipe(ranks)
    call.text, call.neutral = text, functools.partial(_begun_by, recipe, ranks, text)
    return call


class _Rounds:
    """The operations with which a rank in join() continues."""

    def __init__(self, ranks):
        self._plans = {(sequence.name, text): (sequence, plan) for sequence in ranks.all()
                       for text, plan in sequence.plans.items() if plan.neutral}
        self._ranks, self._open, self._asked = ranks, {}, {}

    def counts(self):
        """Returns the number of begun rounds of each operation, including a queued round."""
        with operations.lock():
            return {key: self._count(key) for key in self._plans}

    def _count(self, key):
        operation = self._open.get(key)
        is_queued = operation is not None and not operation.has_begun()
        return self._plans[key][1].rounds + is_queued

    def go_on(self, until=None):
        """Begins a round of each operation that has no open round, except operations with `until`
        rounds."""
        for key in self._free():
            sequence, plan = self._plans[key]
            if until is None or plan.rounds < until.get(key, 0):
                self._open[key] = NamedOperation(sequence, plan.neutral(), True).start()

    def answer(self, calls):
        """Begins each unknown operation in which other ranks wait, once."""
        for name, is_given, number, text, recipe in calls:
            sequence = self._ranks.known_as(name, is_given)
            if number == sequence.said + 1:
                call = _begun_by(recipe, self._ranks, text)
                self._asked[name, text] = sequence
                self._open[name, text] = NamedOperation(sequence, call).start()

    def _learn(self, key):
        """Adds an operation to the known operations, after this rank has begun the operation for
        other ranks."""
        sequence = self._asked.pop(key, None)
        if sequence is not None and key[1] in sequence.plans:
            self._plans[key] = sequence, sequence.plans[key[1]]

    def _free(self):
        """Returns the operations without an open round. Gatherings without a name are queued, and
        end in the order of their start. The newest operation is checked first, and the oldest
        begins first, so that the order is the same on all ranks."""
        over = [key for key in reversed(list(self._open)) if self._open[key].look()]
        for key in over:
            self._open.pop(key).wait()      # raises the operation's error
            self._learn(key)
        others = [key for key in self._plans if key not in self._open and key not in over]
        return others + [key for key in over[::-1] if key in self._plans]

    def rest(self):
        """Waits briefly for an open operation. Returns False if no operation is open."""
        return any(operation.rest(_SLICE_MS) for operation in list(self._open.values()))

    def raise_cause(self):
        """After the loss of a rank: raises the error of another open operation, if there is one. A
        rank that has found a disagreement leaves the job, so ranks that have not checked yet first
        get the error of this loss."""
        for operation in self._open.values():
            with contextlib.suppress(PeerLost):
                operation.wait()

    def end(self, every):
        """Starts the missing rounds, after all ranks have stopped with these counts. An operation
        that was started for other ranks may be added to the known operations only during this call.
        The counts of this rank do not include the rounds of such an operation."""
        until = {key: max(counts.get(key, 0) for counts in every) for key in set().union(*every)}
        self.go_on(until)
        while self._open:
            self.rest()
            self.go_on(until)


def join(device=-1):
    """Waits until all ranks have called join(). Returns the rank with the most rounds; among equal
    ranks, the highest. Until then this rank takes part in allreduce, allgather and barrier of other
    ranks, under known and new names, with neutral values. An Average still divides by the number of
    all ranks. Any other operation raises an error that names this rank.

      device  ignored"""
    ranks = global_process_set.sequences()
    door().check_body('join()')
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
    """Takes part in operations until all ranks are in join(): then the operation `done` ends."""
    while not poll(done):
        rounds.go_on()
        for ranks in sets:
            calls = ranks.joined.calls()
            if ranks is global_process_set.sequences():
                rounds.answer(calls)
        if not rounds.rest():
            done.rest(_SLICE_MS)
    done.wait()
