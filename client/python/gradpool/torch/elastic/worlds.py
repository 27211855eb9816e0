"""The workers of a training function (elastic.run). Between two changes the workers are a world: a
Door, whose job has a fixed number of ranks. A second job, the meeting, has all workers, also late
ones. In the meeting each worker makes one step of a deal (gradpool_elastic.h) at each commit, at
each change of workers, and at the end. In a step every worker sends its Slot to all others, so all
workers of a step decide alike."""
import collections
import errno
import os
import sys

import torch

from ..._native.failing import leaving_with
from ...client import default_timeout_ms
from ...elastic import control, deal as deals
from ...elastic.joining import join, workers_max_of_launcher
from ...errors import GradpoolError, mismatch, PeerLost
from .. import _door

_TIMEOUT_MS = 30 * 60 * 1000
_NAME = 'elastic/slots'
_STEPS_MAX = 1 << 40    # samples of the deal, of which each step uses one
_SAME_MAX = 3           # worlds in a row with the same workers, each without a commit

# Actions of a worker in a step: commits, waits for the next world, has joined the job of the next
# world, has returned from the training function.
WORKS, MEETS, JOINS, ENDS = range(1, 5)

# world   number of the worker's world; 0: none
# members number of workers of this world
# holds   whether the worker has the state of the training
# leaves  whether the job was resized to a size without this worker
# record  number that is the same on all workers with the same progress
Slot = collections.namedtuple('Slot', ('doing', 'world', 'members', 'holds', 'leaves', 'record'))
_WORDS = len(Slot._fields)


def lost(job, ranks):
    """Returns the PeerLost for ranks of the meeting."""
    names = ', '.join(map(str, sorted(ranks)))
    return PeerLost(errno.ECONNRESET, f'{job}: lost worker(s) {names} of the world; elastic.run '
                    'restores the last commit')


class Fixed:
    """The world of a job with a fixed number of workers."""
    holds = True

    def check(self, record):
        """Returns False: no worker joins or leaves."""
        return False

    def end(self):
        pass

    def begin(self):
        return False

    def renew(self, error):
        if error is not None:
            raise error
        raise mismatch('HostsUpdatedInterrupt in a job with a fixed number of workers: start the '
                       'workers with gradpool run --workers-max')

    def close(self):
        pass


class Worlds:
    """The worlds of this process, one after the other.

      holds  whether this worker has the state of the training, which a late worker gets by
             State.sync()"""

    def __init__(self, place):
        self._place, self._members, self._number = place, (), 0
        self._slots = torch.zeros(workers_max_of_launcher(), _WORDS, dtype=torch.int64)
        self._timeout_ms = default_timeout_ms(_TIMEOUT_MS)
        self._same = 0      # worlds in a row with the same members, each without a commit
        self._client, self._job = join(os.environ.get('GRADPOOL_JOB'), None, None, None, None,
                                       self._timeout_ms)
        try:
            self._deal = deals.Deal(self._job, {_NAME: (self._slots.numel(), 'int64')},
                                    samples=_STEPS_MAX, batch=1, epochs=1)
        except BaseException as error:
            with leaving_with(error):
                self.close()
            raise
        self._link = control.link()
        self._link.attach(self._job)
        self.holds = False

    def close(self):
        """Leaves the meeting."""
        self._client.close()

    # ---- steps of the meeting ----

    def _step(self, doing, record=0):
        """Makes a step. Returns {rank: Slot} of all workers of this step."""
        leaves = self._has_to_leave()
        self._begin_step()
        if self._deal.step.number == 1 and self._job.rank == 0:
            # the training begins with the state of rank 0, which alone may have read a checkpoint
            self.holds = not self._deal.step.flags & deals.ENTERS
        leaves = leaves or self._has_to_leave()
        self._slots.zero_()
        self._slots[self._job.rank] = torch.tensor(
            Slot(doing, self._number, len(self._members), self.holds, leaves, record))
        self._job.push_pull(self._deal.tensors[_NAME], self._slots, operation='sum').wait(
            self._timeout_ms)
        return {rank: Slot(*words) for rank, words in enumerate(self._slots.tolist())
                if words[0]}

    def _begin_step(self):
        while True:
            result = self._deal.begin(self._timeout_ms)
            if result == deals.STEP:
                return
            if result == deals.LEAVES:
                self._exit('left', 'the job has shrunk, and this worker has left it')
            if result != deals.CARRIES:
                self._exit('late', 'the training had ended before this worker got its state')

    def _has_to_leave(self):
        """Returns whether the last resize has removed this worker. The answer is stored before and
        after the deal sends its record, so that a leave is in a Slot before it happens."""
        members = self._job.members()
        return members.version > 0 and members.wanted <= self._job.rank

    def _exit(self, ending, text):
        """Ends this process, which has no part in the training any more."""
        print(f'gradpool: {self._job}: {text}', file=sys.stderr, flush=True)
        self._link.send(ending=ending)
        self.close()
        raise SystemExit(0)

    def _present(self, slots):
        """Checks a step of this world. Returns the Slots of its members. PeerLost: a member is
        lost, or restores its last commit."""
        gone = [rank for rank in self._members
                if rank not in slots or slots[rank].world != self._number]
        if gone:
            raise lost(self._job, gone)
        mine = {rank: slots[rank] for rank in self._members}
        if any(slot.doing == MEETS for slot in mine.values()):
            raise lost(self._job, [rank for rank, slot in mine.items() if slot.doing == MEETS])
        if len({slot.doing for slot in mine.values()}) > 1:
            ended = [rank for rank, slot in mine.items() if slot.doing == ENDS]
            raise mismatch(f'{self._job}: worker(s) {", ".join(map(str, ended))} returned from the '
                           'function of elastic.run, and others commit; let all workers make the '
                           'same steps')
        return mine

    # ---- a world ----

    def check(self, record):
        """Called by all workers of the world at the same point of the script. Returns whether
        workers join or leave. `record`: as in a Slot."""
        slots = self._step(WORKS, record)
        mine = self._present(slots)
        records = {rank: slot.record for rank, slot in mine.items()}
        if len(set(records.values())) > 1:
            first = min(records)
            other = next(rank for rank in records if records[rank] != records[first])
            raise mismatch(f'{self._job}: workers {first} and {other} have recorded different '
                           'batches in their ElasticSampler at a commit; record batches of the '
                           'same size, equally often, on all workers')
        self._same = 0
        return any(slot.leaves == (rank in mine) for rank, slot in slots.items())

    def end(self):
        """Ends the training, when all workers have returned from the function."""
        self._present(self._step(ENDS))
        self._end_deal('trained')
        self.close()

    def _end_deal(self, ending):
        self._deal.end()
        result = deals.CARRIES
        while result == deals.CARRIES:
            result = self._deal.begin(self._timeout_ms)
        self._link.send(ending=ending)

    def begin(self):
        """Enters the first world of this process. Returns whether rank or number of workers are
        not those of the launcher, which the script has used so far."""
        before = self._place.rank, self._place.size
        self._meet()
        self._link.send(step=self._deal.step.number)
        return before != (_door.rank(), _door.size())

    def renew(self, error):
        """Enters the next world. `error`: the error that has ended this one; None: a planned
        change."""
        if error is not None and self._same >= _SAME_MAX:
            raise error
        self._meet()

    def _meet(self):
        _door.leave()
        before, self._number = set(self._members), 0
        while not self._is_met(self._step(MEETS)):
            pass
        self._same = self._same + 1 if set(self._members) == before else 0

    def _is_met(self, slots):
        """Forms a world if all workers of a step wait for the next one. Returns whether the world
        has begun."""
        ends = [slot for slot in slots.values() if slot.doing == ENDS]
        if ends and len(ends) == ends[0].members:   # otherwise the world has lost a member
            self._end_deal('late')
            self._exit('late', 'the training had ended before this worker got its state')
        staying = {rank: slot for rank, slot in slots.items() if not slot.leaves}
        if self._job.rank not in staying or any(
                slot.doing != MEETS for slot in staying.values()):
            return False
        holders = [rank for rank, slot in staying.items() if slot.holds]
        if not holders:
            raise GradpoolError(errno.EOWNERDEAD, f'{self._job}: all workers with the state of the '
                                'training were lost; start the training again')
        # a worker with the state has rank 0, whose state goes to all others
        self._members = (*holders, *(rank for rank in staying if rank not in holders))
        return self._open(self._deal.step.number)

    def _door_of(self, number):
        """Returns the Door to the job of the world. None: the job ends, because a member that has
        joined was lost. The other members wait for this worker in the meeting."""
        try:
            return _door.Door(f'{self._job.name}.{number}', self._members.index(self._job.rank),
                              len(self._members), self._place)
        except GradpoolError as error:
            if error.errno not in (errno.ESTALE, errno.ECONNRESET):
                raise
            print(f'gradpool: {error}', file=sys.stderr, flush=True)
        return None

    def _open(self, number):
        """Joins the job of the world. When all members have joined, the service reports the loss of
        each one to all others, so no later wait is for a member that never joins."""
        door, is_open = self._door_of(number), False
        if door is None:
            self._step(MEETS)       # the other members of the world form another one, too
            return False
        self._number = number
        try:
            self._present({rank: slot for rank, slot in self._step(JOINS).items()
                           if slot.doing == JOINS})
            _door.enter(door)
            is_open = True
        except PeerLost:
            self._number = 0
        finally:
            if not is_open:
                _door.leave()
                door.close()
        return is_open


def worlds_of():
    """Returns the Worlds of this process, or Fixed. Raises Mismatch if the number of workers was
    fixed before the first call of a function of elastic.run."""
    place = _door.known()
    if isinstance(place, _door.Door):
        if place.is_elastic:
            raise mismatch('elastic.run inside of a function of elastic.run, or after one: a late '
                           'worker begins in the first function. Put all epochs into one function')
        if place.place is not None:
            raise mismatch('a call that needs all workers, such as broadcast_parameters(), '
                           'allreduce() or local_size(), was made before the function of '
                           'elastic.run, so the number of workers is fixed. Make such calls in the '
                           'function; TorchState copies the state of rank 0 to all workers')
        return Fixed()
    if place.worlds is not None:
        raise mismatch('elastic.run after the end of another function of elastic.run: a late '
                       'worker begins in the first function. Put all epochs into one function')
    place.worlds = Worlds(place)
    return place.worlds
