"""Operations of process groups: from the call to the result, on tensors that are declared once.

    Names      the tensors of a sequence of operations that all its ranks call in the same order
    Slot       one such tensor: its rounds follow each other, so parts queue for it
    Part       one push of one tensor
    Operation  what torch calls a Work: parts, and what is done when they are over

Whoever waits for an operation sees it through. Where nobody does yet and something hangs on it (a
Future, a part that queues behind one of its own), the process's thread does
(_process.completion)."""
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

# Maximum number of tensors that a sequence of operations keeps declared, and of their bytes: each
# has staging memory.
NAMES_MAX = 256
BYTES_MAX = 512 << 20
# Time beyond an operation's own deadline, for the thread that watches it.
GRACE_S = 5.0

_lock = threading.RLock()  # protects all slots, and the choice of the thread that ends an operation


def lock():
    """Returns the lock of all slots, which is another one in a forked child."""
    return _lock


def _forget():
    """Creates a new lock in a forked child, where no thread would release a lock that was held."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_forget)


class Names:
    """Tensors by dtype and elements, for ranks that use them in the same order. All ranks name a
    tensor by a number that counts declarations, and drop the same tensors at the same place in that
    order, so no agreement is needed (Y8)."""

    def __init__(self, job, prefix, ranks=None, names_max=NAMES_MAX):
        self._job, self._prefix, self._ranks, self._names_max = job, prefix, ranks, names_max
        # (dtype, elements) -> Slot; the last used is the last
        self._slots = collections.OrderedDict()
        self._forgotten = []  # dropped tensors whose last round is not over yet
        self._declared = self._bytes = 0
        self._habits, self._pool = Habits(), Pool(self._declare_pieces)

    def pieces(self, dtype, elements):
        """Returns [(Slot, offset, length)] for a length that does not recur; None: slot() is
        for it. All ranks get the same result."""
        key, size = (dtype, elements), elements * torch.empty(0, dtype=dtype).element_size()
        recurs = self._habits.recurs(key)
        if key in self._slots or elements == 0 or self._is_kept(size, recurs):
            return None
        return self._pool.pieces(dtype, elements)

    def _is_kept(self, size, recurs):
        """Returns whether one more tensor of that size gets a Slot. For a size that recurs others
        are dropped, unless they recur as well."""
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
        """Returns the Slot of that size, and declares it if it is not known."""
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
        """Drops all tensors, because no later operation uses them."""
        while self._slots:
            self._forget_one()
        self._forgotten += self._pool.drain()
        self._make_room(0)


class Slot:
    """A declared tensor, and the parts that want a round of it. The first part has a round, the
    others wait."""

    def __init__(self, tensor, size):
        self.tensor, self.size = tensor, size
        self.parts = collections.deque()

    def end(self):
        """Undeclares the tensor. False: a round of it is still open."""
        if self.parts:
            return False
        try:
            self.tensor.job.remove(self.tensor)
        except GradpoolError as error:
            return error.errno != errno.EBUSY
        return True


class Part:
    """One push. `begin`(tensor) starts it when the Slot is free, and returns the Request.
    `crossing` moves its values to the host and back. `land` is called when its round is over."""

    def __init__(self, slot, begin, crossing=HERE, land=None):
        self.slot, self._begin, self.crossing, self._land = slot, begin, crossing, land
        self.operation = self.request = None

    def queue(self, operation):
        """Called with the lock held, like the next two methods."""
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
        """Puts the result of its round into place, once."""
        land, self._land = self._land, None
        if land is not None:
            land()

    def leave(self):
        """Begins the next round, because this one is over."""
        self.slot.parts.popleft()
        if self.slot.parts:
            self.slot.parts[0].begin()


def _nothing():
    """An operation whose results are in place when its parts are over."""


class Operation(Work):
    """One operation of a group, on this rank. `group` has `timeout_s`, the `open` operations, and a
    `failure` from the first operation that failed (Y9).

    what    how errors call it
    parts   its Parts
    result  the tensors that its Future holds
    finish  called when all parts are over"""

    def __init__(self, group, what, parts, result=(), finish=None):
        super().__init__()
        self._group, self._what, self._parts = group, what, parts
        self._result, self._finish = list(result), finish or _nothing
        self._crossings = ()        # carriers of the results that come back
        self._deadline_s = time.monotonic() + group.timeout_s
        self._over, self._error, self._promise = threading.Event(), None, None
        self._is_taken = False      # a thread is going to end the operation
        self._is_handed = False     # the thread has ended it
        self._is_asked = False
        self._is_unattended = False     # there is no deadline before the first wait

    def start(self):
        """Queues all parts; returns the operation."""
        with _lock:
            self._group.open.add(self)
            if self._group.failure is not None:
                self.end(self._group.failure)
            for part in self._parts:
                if not self._over.is_set():
                    part.queue(self)
        unattended.wake()
        return self

    # ---- as torch asks ----

    def wait(self, timeout=datetime.timedelta(0)):
        """Returns True when the result is in place; raises the operation's error. Timeout: the
        operation continues, unless the deadline of its group has passed."""
        self._is_asked = True
        return self.pass_by(timeout)

    def pass_by(self, timeout):
        """Like wait(), for the package itself: torch may still request the end (Y10)."""
        limit_s = timeout.total_seconds() if timeout else max(self._left_s(), 0) + GRACE_S
        if self._take():
            self._see_through(limit_s)
        elif not self._over.wait(max(limit_s, 0)):
            raise Timeout(errno.ETIMEDOUT, f'{self._what}: not over within {limit_s:g} s')
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
            raise mismatch(f'{self._what}: a result is gone, since nobody but this Work held it '
                           f'while the next {halves.RECENT} operations ended; hold it')
        return found

    def drop_results(self):
        """Returns the results, which the operation no longer holds."""
        if self._result is None:
            return ()
        results, self._result, self._finish = self._result, None, _nothing
        self._references = [weakref.ref(tensor) for tensor in results]
        return results

    def get_future(self):
        """Returns a Future of the resulting tensors. For a failure it has the text, and is a
        RuntimeError."""
        with _lock:
            self._is_asked = True
            is_late = self._promise is None and self._over.is_set()
            self._promise = self._promise or Promise(self._results())
        if is_late:
            self._complete_future()
        self.hand_over()
        return self._promise.future

    # ---- seeing it through ----

    def hand_over(self):
        """Passes the operation to the process's thread, unless another thread waits for it. If that
        thread itself calls this, in a callback of a Future, the operation is ended at once, because
        no other thread would end it."""
        if not self._is_left():
            return
        if is_here():
            self._see_through(self._left_s())
        else:
            complete(self)

    def _is_left(self):
        """Gives the operation to the thread. False: it is over, or another thread ends it."""
        with _lock:
            if self._over.is_set() or self._is_taken:
                return False
            self._is_taken = self._is_handed = True
        return True

    def look_after(self, age_s):
        """Passes the operation to the thread if it is that old and no thread ends it."""
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
        """Works on the operation in the calling thread for this time; then the process's thread
        continues."""
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
        """Called by the thread for an operation behind which another one of the thread queues."""
        if self._is_handed:
            self._settle(self._left_s())
        elif not self._over.wait(max(self._left_s(), 0) + GRACE_S):
            self.end(Timeout(errno.ETIMEDOUT, 'not over'))

    def let_go(self):
        """Leaves the operation to the thread and does not work on it here: for a destructor, which
        may run anywhere."""
        if self._is_left():
            complete(self)

    def is_settled(self):
        """Returns True when the operation is over. Checks no request."""
        return self._over.is_set()

    def waits_for(self):
        """Returns the Request to wait for: a finished one if all are, so that no thread sleeps."""
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
        """Waits for all parts; then the operation is over, or continues with further parts.
        Timeout: `limit_s` has passed before the deadline. Every other failure is the
        operation's."""
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
        """Works on its parts until then. Returns the parts that follow, if it is not over."""
        for part in self._parts:
            self._wait_for(part, until_s)
        if not self._over.is_set():
            self._land({part.crossing for part in self._parts}, self._finish)

    def _land(self, crossings, finish):
        """Puts the results of these crossings into place; finish() does the rest. Returns the
        result of finish()."""
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
                # parts and operation refer to each other; this frees what the parts have lent
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
