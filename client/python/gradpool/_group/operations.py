"""Operations of process groups, from the call to the result. They push tensors that were declared
once.

    Names      the tensors of a sequence of operations that all its ranks call in the same order
    Slot       one such tensor; only one Part at a time has a round, later Parts are queued
    Part       one push of one tensor
    Operation  called Work by torch: some Parts, and a function that is called when all of them have
               ended

The thread that waits for an operation completes the operation. If no thread waits, but a Future or
a queued Part depends on the operation, the completion thread does this (_process.completion)."""
import collections
import contextlib
import datetime
import errno
import functools
import os
import threading
import time
import weakref

import torch
from torch._C._distributed_c10d import Work

from .._native.binding import INT_MAX
from .._process.completion import complete, is_here
from .._process.promise import Promise
from .._tensors.cuda import HERE
from .._tensors.lengths import FIRST, FIRST_BYTES, Habits, Pool
from ..errors import error_of, GradpoolError, mismatch, overdue, Timeout
from . import halves, unattended

# Maximum number, and maximum bytes, of the tensors that a sequence of operations keeps declared.
# Each tensor has staging memory.
NAMES_MAX = 256
BYTES_MAX = 512 << 20
# The completion thread waits this much longer than the operation's deadline.
GRACE_S = 5.0

_lock = threading.RLock()  # protects all Slots, and the choice of the thread that ends an operation


def lock():
    """Returns the lock for all Slots. A forked child has a lock of its own."""
    return _lock


def _forget():
    """Creates a new lock in a forked child: no thread of the child would release a held lock."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_forget)


class Names:
    """Tensors by dtype and number of elements, for ranks that use them in the same order. Each rank
    counts its declarations and uses the count as the name. All ranks drop the same tensors at the
    same call. Names therefore agree without communication (Y8)."""

    def __init__(self, job, prefix, ranks=None, names_max=NAMES_MAX):
        self._job, self._prefix, self._ranks, self._names_max = job, prefix, ranks, names_max
        # (dtype, elements) -> Slot, sorted by last use
        self._slots = collections.OrderedDict()
        self._forgotten = []  # dropped tensors whose last round is still open
        self._declared = self._bytes = 0
        self._habits, self._pool = Habits(), Pool(self._declare_pieces)

    def pieces(self, dtype, elements):
        """Returns [(Slot, offset, length)] for a length that does not recur. Returns None for a
        length that recurs: slot() then returns its Slot. All ranks get the same result."""
        key, size = (dtype, elements), elements * torch.empty(0, dtype=dtype).element_size()
        recurs = self._habits.recurs(key)
        if key in self._slots or elements == 0 or self._is_kept(size, recurs):
            return None
        return self._pool.pieces(dtype, elements)

    def _is_kept(self, size, recurs):
        """Returns whether a tensor of this size gets a Slot. For a size that recurs, other tensors
        are dropped, unless their sizes recur, too."""
        if len(self._slots) < FIRST and self._bytes + size <= FIRST_BYTES:
            return True
        has_room = len(self._slots) < self._names_max and self._bytes + size <= BYTES_MAX
        return recurs and (has_room or not self._habits.is_recent(next(iter(self._slots))))

    def _declare_pieces(self, dtype, elements):
        named = {f'{self._prefix}/{name}': count for name, count in elements.items()}
        told = str(dtype).removeprefix('torch.')
        return [Slot(tensor, 0) for tensor in
                self._job.declare_all(named, told, ranks=self._ranks)]

    def slot(self, dtype, elements):
        """Returns the Slot of that size. Declares the tensor at its first use."""
        key = dtype, elements
        if key not in self._slots:
            size = elements * torch.empty(0, dtype=dtype).element_size()
            self._make_room(size)
            self._slots[key] = self._declare(dtype, elements, size)
        self._slots.move_to_end(key)
        return self._slots[key]

    def _declare(self, dtype, elements, size):
        self._declared += 1
        self._bytes += size
        return Slot(self._job.declare(f'{self._prefix}/{self._declared}', elements,
                                      str(dtype).removeprefix('torch.'), ranks=self._ranks), size)

    def _make_room(self, size):
        while self._slots and (len(self._slots) >= self._names_max
                               or self._bytes + size > BYTES_MAX):
            self._forget_one()
        self._forgotten = [slot for slot in self._forgotten if not slot.end()]

    def _forget_one(self):
        _, slot = self._slots.popitem(last=False)
        self._bytes -= slot.size
        self._forgotten.append(slot)

    def end(self):
        """Drops all tensors after the last operation."""
        while self._slots:
            self._forget_one()
        self._forgotten += self._pool.drain()
        self._make_room(0)


class Slot:
    """A declared tensor, and the Parts that need a round of this tensor. The first Part has a
    round, the others wait."""

    def __init__(self, tensor, size):
        self.tensor, self.size = tensor, size
        self.parts = collections.deque()

    def end(self):
        """Undeclares the tensor. Returns False if a round of the tensor is still open."""
        if self.parts:
            return False
        try:
            self.tensor.job.remove(self.tensor)
        except GradpoolError as error:
            return error.errno != errno.EBUSY
        return True


class Part:
    """One push of a Slot. `begin`(tensor) starts the push when the Slot is free, and returns the
    Request. `crossing` moves values to the host and back. `land` is called at the end of the
    round."""

    def __init__(self, slot, begin, crossing=HERE, land=None):
        self.slot, self._begin, self.crossing, self._land = slot, begin, crossing, land
        self.operation = self.request = None

    def queue(self, operation):
        """Adds this Part to the queue of its Slot. The caller holds the lock, as for is_first() and
        begin()."""
        self.operation = operation
        self.slot.parts.append(self)
        if self.is_first():
            self.begin()
        else:
            self.slot.parts[-2].operation.hand_over()

    def is_first(self):
        return self.slot.parts[0] is self

    def begin(self):
        try:
            self.request = self._begin(self.slot.tensor)
        except GradpoolError as error:
            self.operation.end(error)

    def land(self):
        """Copies the result of the round to its destination, once."""
        land, self._land = self._land, None
        if land is not None:
            land()

    def leave(self):
        """Removes this Part from the queue and begins the round of the next Part."""
        self.slot.parts.popleft()
        if self.slot.parts:
            self.slot.parts[0].begin()


def _nothing():
    """The `finish` of an operation that has no work after its Parts."""


class Operation(Work):
    """One operation of a group, on this rank. `group` has `timeout_s`, the `open` operations, and
    `failure`, the error of the first operation that failed (Y9).

    what    name of the operation in errors
    parts   its Parts
    result  tensors for its Future
    finish  function that is called at the end of all Parts"""

    def __init__(self, group, what, parts, result=(), finish=None):
        super().__init__()
        self._group, self._what, self._parts = group, what, parts
        self._result, self._finish = list(result), finish or _nothing
        self._crossings = ()        # transfers of results to their devices
        self._deadline_s = time.monotonic() + group.timeout_s
        self._over, self._error, self._promise = threading.Event(), None, None
        self._is_taken = False  # whether a thread is completing the operation
        self._is_handed = False  # whether the completion thread will complete the operation
        self._is_asked = False
        # no caller waits yet, so the operation has no deadline
        self._is_unattended = False

    def start(self):
        with _lock:
            self._group.open.add(self)
            if self._group.failure is not None:
                self.end(self._group.failure)
            for part in self._parts:
                if not self._over.is_set():
                    part.queue(self)
        unattended.wake()
        return self

    # ---- methods that torch calls ----

    def wait(self, timeout=datetime.timedelta(0)):
        """Returns True when the result is in place; raises the operation's error. After a Timeout
        the operation continues, unless its deadline has passed."""
        self._is_asked = True
        return self.pass_by(timeout)

    def pass_by(self, timeout):
        """Like wait(), for calls of this package. torch may still query the operation afterwards
        (Y10)."""
        limit_s = timeout.total_seconds() if timeout else max(self._left_s(), 0) + GRACE_S
        if self._take():
            self._see_through(limit_s)
        elif not self._over.wait(max(limit_s, 0)):
            raise Timeout(errno.ETIMEDOUT, f'{self._what}: not over within {limit_s:g} s; wait '
                          'longer, or look at the ranks that are missing')
        self._raise_or_follow()
        return True

    def _raise_or_follow(self):
        if self._error is not None:
            raise self._error
        for crossing in self._crossings:
            crossing.follow()

    def synchronize(self):
        self.wait()

    def is_completed(self):
        self.hand_over()
        return self._over.is_set()

    def is_success(self):
        return self._over.is_set() and self._error is None

    def exception(self):
        return self._error

    def result(self):
        return self._results()

    def _results(self):
        if self._result is not None:
            return self._result
        found = [reference() for reference in self._references]
        if any(tensor is None for tensor in found):
            raise mismatch(f'{self._what}: a result was freed, because the script did not '
                           f'hold it until {halves.RECENT} later operations ended; hold the result')
        return found

    def drop_results(self):
        """Returns the results and removes them from the operation."""
        if self._result is None:
            return ()
        results, self._result, self._finish = self._result, None, _nothing
        self._references = [weakref.ref(tensor) for tensor in results]
        return results

    def get_future(self):
        """Returns a Future of the result tensors. If the operation fails, the Future raises a
        RuntimeError with the text."""
        with _lock:
            self._is_asked = True
            is_late = self._promise is None and self._over.is_set()
            self._promise = self._promise or Promise(self._results())
        if is_late:
            self._complete_future()
        self.hand_over()
        return self._promise.future

    # ---- completion ----

    def hand_over(self):
        """Lets the completion thread end the operation, unless another thread waits for it. If the
        completion thread itself calls this method, in a callback of a Future, the operation ends
        during the call."""
        if not self._is_left():
            return
        if is_here():
            self._see_through(self._left_s())
        else:
            complete(self)

    def _is_left(self):
        """Marks the operation for the completion thread. Returns False if the operation has ended,
        or another thread is ending it."""
        with _lock:
            if self._over.is_set() or self._is_taken:
                return False
            self._is_taken = self._is_handed = True
        return True

    def look_after(self, age_s):
        """Hands the operation to the completion thread if it is older than `age_s` and no thread is
        completing it."""
        if not self._is_taken and self._group.timeout_s - self._left_s() >= age_s:
            self._is_unattended = True
            self.hand_over()

    def _take(self):
        with _lock:
            if self._over.is_set() or self._is_taken:
                return False
            if not self._is_begun() and not is_here():
                self.hand_over()
                return False
            self._is_taken = True
        return True

    def _see_through(self, limit_s):
        """Runs the operation in the calling thread for at most `limit_s`. Afterwards the completion
        thread continues with the operation."""
        try:
            until_s = time.monotonic() + limit_s
            while not self._over.is_set():
                self._await_turns()
                self._settle(until_s - time.monotonic())
        except BaseException:
            with _lock:
                self._is_taken = self._is_handed = False
            self.hand_over()
            raise

    def _await_turns(self):
        for part in self._parts:
            while part.request is None and not self._over.is_set():
                part.slot.parts[0].operation.wait_in_thread()

    def wait_in_thread(self):
        """Called by the completion thread: ends the operation, because another operation is queued
        behind it."""
        if self._is_handed:
            self._settle(self._left_s())
        elif not self._over.wait(max(self._left_s(), 0) + GRACE_S):
            self.end(Timeout(errno.ETIMEDOUT, 'not over'))

    def let_go(self):
        """Hands the operation to the completion thread. Destructors call this method, so it runs no
        code of the script."""
        if self._is_left():
            complete(self)

    def is_settled(self):
        """Returns whether the operation is over, without a check of its Requests."""
        return self._over.is_set()

    def waits_for(self):
        """Returns an unfinished Request to wait for; if all have finished, one of these, so that
        the wait returns at once."""
        with contextlib.suppress(GradpoolError):
            requests = [part.request for part in self._parts if part.request]
            return next((request for request in requests if not request.done()),
                        requests[0] if requests and self._is_begun() else None)

    def is_over(self):
        try:
            if not self._over.is_set() and (self._is_late() or self._is_ready()):
                self._settle(0)
        except Exception as error:
            self.end(error)
        return self._over.is_set()

    def _is_begun(self):
        return all(part.request for part in self._parts)

    def _is_ready(self):
        return self._is_begun() and all(part.request.done() for part in self._parts)

    def _is_late(self):
        return self._left_s() <= 0 and (self._is_asked or not self._is_unattended)

    def _left_s(self):
        return self._deadline_s - time.monotonic()

    def _settle(self, limit_s):
        """Waits for all Parts; then the operation is over, or continues with further Parts.
        Timeout: `limit_s` has passed before the deadline. Every other error fails the operation."""
        until_s = min(self._deadline_s, time.monotonic() + limit_s)
        try:
            more = self._pass(until_s)
        except Timeout as timeout:
            if until_s < self._deadline_s:
                raise
            self.end(self._overdue(timeout))
        except Exception as other:
            self.end(other)
        else:
            if more:
                self._go_on(more)
            else:
                self.end(None)

    def _overdue(self, timeout):
        by = getattr(self._group, 'raised_by', 'GRADPOOL_TIMEOUT_MS')
        return overdue(timeout, self._group.timeout_s, by)

    def _pass(self, until_s):
        """Waits for the Parts until `until_s`. Returns further Parts, or none if the operation is
        over."""
        for part in self._parts:
            self._wait_for(part, until_s)
        if not self._over.is_set():
            self._land({part.crossing for part in self._parts}, self._finish)

    def _land(self, crossings, finish):
        """Copies results to their devices through these crossings, calls finish(), and returns its
        result."""
        self._crossings = crossings
        for crossing in crossings:
            finish = functools.partial(crossing.land, finish)
        return finish()

    def _go_on(self, parts):
        with _lock:
            for part in self._parts:
                part.leave()
            self._parts = parts
            for part in parts:
                if not self._over.is_set():
                    part.queue(self)

    def _wait_for(self, part, until_s):
        if part.request is None:
            raise Timeout(errno.ETIMEDOUT, f"tensor '{part.slot.tensor.name}': an earlier "
                          'operation is not over')
        left_ms = (until_s - time.monotonic()) * 1e3
        part.request.wait(int(min(max(left_ms, 1), INT_MAX)))
        part.land()

    def end(self, error):
        """Ends the operation; called once."""
        with _lock:
            if self._over.is_set():
                return
            self._error = self._told(error)
            self._over.set()
            self._group.open.discard(self)
            if not self._is_asked:
                halves.hold(self)
            if error is None:
                for part in self._parts:
                    part.leave()
                # breaks the reference cycle of Parts and operation, so that the memory of the Parts
                # is freed
                self._parts = []
            promise = self._promise
        if promise is not None:
            self._complete_future()
        if error is not None:
            self._group.fail(self._error)

    def _told(self, error):
        if isinstance(error, GradpoolError) and error is not self._group.failure:
            return error_of(-error.errno, f'{self._what}: {error}')
        return error

    def _complete_future(self):
        if self._error is None:
            self._promise.keep(self._result)
        else:
            self._promise.break_by(self._error)
