"""Open rounds of a job of this process, and the Requests through which a script waits for them."""
import contextlib
import ctypes
import errno
import gc
import sys
import threading
import time
import weakref

from .._native.binding import check, INT_MAX, lib, number
from .._native.memory import Loan
from ..errors import error_of, GradpoolError, mismatch, Timeout
from .completion import complete, complete_slowly, is_here

SIGNALS_MS = 200    # longest time until the Python handler of a signal runs
_SLOW_AFTER_S = 1.0  # age in seconds after which a dropped round is checked less often (Y11)
_COLLECT_S = 1.0        # longest wait for another thread, which may be blocked in a destructor

_collecting = threading.RLock()


class Request:
    """A round in progress. If the script drops the Request, the round continues: its buffers are
    kept until the end (Y2), and the completion thread ends the round (Y11)."""
    __slots__ = '_round', '__weakref__'

    def __init__(self, round_):
        self._round = round_
        round_.request = weakref.ref(self)

    def wait(self, timeout_ms=0):
        """Returns when the result is in place and the script may write to the gradient. Timeout:
        the round is not finished; call wait() again. Any other error ends the request, and later
        calls raise the error again."""
        self._round.wait(number(timeout_ms, 'timeout_ms', INT_MAX))

    def done(self, timeout_ms=0):
        """Returns True if wait() will not block; False if the round is open after `timeout_ms`."""
        return self._round.done(timeout_ms)

    def mute(self):
        """Suppresses the error of this round, because the script gets another error of the same
        step."""
        self._round.is_muted = True

    def __del__(self):
        try:
            if self._round.handle and self._round.is_left_open() and not sys.is_finalizing():
                self._round.drop()
        # no round: __init__ was interrupted. A thread cannot be started when the interpreter ends
        except (AttributeError, RuntimeError):
            pass


class Round:
    """The round of a Request. `rounds` refers to the round until its end.

    tensors  tensors that no other round may use until the end
    handle   of the library; NULL: not begun; None: over
    turn     lock for the one thread that waits for a dropped round; None: the round was not dropped
    is_muted whether the error of a dropped round is forgotten
    request  weak reference to the Request; None: there is none yet"""
    __slots__ = ('_rounds', 'tensors', 'turn', 'is_awaited', 'is_muted', 'handle', 'request',
                 '_loan', '_error', '__weakref__')
    _OPEN = -errno.ETIMEDOUT, -errno.EDEADLK    # results of gp_wait() after which the round is open

    def __init__(self, rounds, tensors, loan):
        self._rounds, self.tensors, self.turn = rounds, tensors, None
        self.is_awaited = self.is_muted = False
        self.request = None
        self.handle, self._loan, self._error = ctypes.c_void_p(), loan, None
        rounds.hold(self)

    @property
    def client(self):
        return self._rounds.job.client

    def give_up(self):
        """Ends a round that has not begun, or whose push was interrupted by an exception in a
        signal handler."""
        if self.handle:
            self.drop()
        else:
            self._finish(None)

    def wait(self, timeout_ms):
        if self.handle is not None:
            # leaving the job ends this call; closing the client does not
            with self._rounds.job.client._using():
                self._wait(timeout_ms)
        if self._error is not None:
            raise self._error

    def _wait(self, timeout_ms):
        # leave() takes the handle from this object, and not from the library
        handle = self.handle
        left_ms = timeout_ms or self.client._timeout_ms
        if self._rounds.job.backup is not None:
            # before end_round() gp_wait() fails at once, but the polls below would not
            result = self._wait_in_c(handle, 1)
            if result != -errno.ETIMEDOUT and self.handle:
                check(result)
        while left_ms > SIGNALS_MS and self.handle and lib.gp_poll(handle, SIGNALS_MS) == 0:
            left_ms -= SIGNALS_MS  # a Ctrl-C is raised between two of these waits
        if self.handle is None:
            return
        result = self._wait_in_c(handle, left_ms)
        if self.handle is not None:
            check(result)

    def _wait_in_c(self, handle, timeout_ms):
        """Returns the library's result, and marks the round as ended unless it is still open."""
        results = []
        try:
            # map() makes the call in C, so that no exception of a signal's handler loses the result
            results.extend(map(lib.gp_wait, (handle,), (timeout_ms,)))
        finally:
            if results and results[0] not in self._OPEN:
                self.handle = None     # the library has freed the request
                self._see(results[0])
        return results[0]

    def _see(self, result):
        try:
            check(result)
        except GradpoolError as error:
            self._finish(error)
        else:
            self._loan = self._rounds.keep(self.tensors, self._loan)
            self._finish(None)

    def done(self, timeout_ms):
        if self.handle is None:
            return True
        with self.client._using():
            handle = self.handle
            return handle is None or lib.gp_poll(handle, timeout_ms) == 1

    def cancel(self):
        """Ends the round after the job was left. The library has freed the handle."""
        self._finish(error_of(-errno.ECANCELED, f"job '{self._rounds.job.name}' has been left: "
                              'join the job again'))

    def is_left_open(self):
        """Returns whether the round is still open and was begun by this process."""
        return bool(self.handle) and self._rounds.job.is_of_this_process()

    def is_dropped(self):
        return self.turn is not None

    def drop(self):
        """Hands the round to the completion thread (Y11). Acquires no lock of the job, because a
        destructor may run at any point."""
        if self.turn is None:
            self.turn = threading.Lock()
            complete(_Dropped(self))

    def await_turn(self, timeout_ms):
        """Waits for a round whose Request was dropped. From now on the completion thread (Y11) does
        not wait for this round."""
        self.is_awaited = True
        try:
            with self.turn:
                self.wait(timeout_ms)
        finally:
            self.is_awaited = False

    def end_if_over(self):
        """Ends a dropped round if the library has ended it and no other thread waits for it. The
        caller ensures that the client does not end during this call."""
        if self.handle is not None and self.turn.acquire(blocking=False):
            try:
                if self.handle is not None and lib.gp_poll(self.handle, 0) == 1:
                    self._wait(1)
            finally:
                self.turn.release()

    def forget(self):
        """Ends a round whose handle belongs to another Round."""
        self._finish(None)

    def _finish(self, error):
        self.handle, self._error = None, error
        self._loan.end()
        self._rounds.release(self, error)


class _Dropped:
    """The item of a dropped round for the completion thread (Y11). The reference to the round is
    weak: if the script also drops the job, the job is left and the round freed, even if other ranks
    never push."""
    __slots__ = ('_round', '_slow_from_s')

    def __init__(self, round_):
        self._round = weakref.ref(round_)
        self._slow_from_s = time.monotonic() + _SLOW_AFTER_S

    def waits_for(self):
        round_ = self._round()
        return None if round_ is None or round_.is_awaited else self

    def done(self, timeout_ms):
        round_ = self._round()
        if round_ is not None:
            with round_.turn:
                round_.done(timeout_ms)

    def is_over(self):
        if self._is_ended():
            return True
        if self._slow_from_s is None or time.monotonic() < self._slow_from_s:
            return False
        self._slow_from_s = None
        complete_slowly(self)
        return True

    def _is_ended(self):
        round_ = self._round()
        if round_ is None:
            return True
        with contextlib.suppress(GradpoolError):    # the client is being closed, with its rounds
            with round_.client._using():
                round_.end_if_over()
        return not round_.is_left_open()


class Rounds:
    """The open rounds of a job, whose buffers the library uses."""

    def __init__(self, job):
        self.job = job
        self._open = set()
        self._kept = {}     # in a job with backup workers: the Loan of each tensor's last round
        # first error of a dropped round; whether a call has raised such an error
        self._error, self._is_told = None, False
        self._lock = threading.RLock()      # a signal's handler may push, too

    def hold(self, round_):
        self._open.add(round_)

    def request_of(self, round_):
        """Returns the Request of a round that has begun. In a job with backup workers another
        gradient of an open round belongs to the Request of the first gradient. The library has
        copied this gradient, so its memory is no longer used."""
        first = self._with_handle_of(round_) if self.job.backup is not None else None
        if first is None:
            return Request(round_)
        round_.forget()
        request = first.request and first.request()
        if request is None or first.is_dropped():
            raise mismatch(f"{self.job}: the Request of '{round_.tensors[0].name}' from the first "
                           'gradient of this round was dropped. Keep it until the round has ended, '
                           'or take gradients out of Backup()')
        return request

    def _with_handle_of(self, round_):
        return next((other for other in list(self._open) if other is not round_ and
                     other.handle and other.handle.value == round_.handle.value), None)

    def keep(self, tensors, loan):
        """Stores the Loan of a round in a job with backup workers, because next_round() may write
        to the round's results later. Returns the Loan that ends with the round."""
        if self.job.backup is None:
            return loan
        self._kept.update(dict.fromkeys(tensors, loan))
        return Loan()

    def release(self, round_, error):
        """Removes a round that is over. Stores the first error of a dropped round, for the next
        push or for leave()."""
        self._open.discard(round_)
        if error is None or round_.is_muted:
            return
        with self._lock:
            if not round_.is_dropped():
                self._is_told = True
            elif self._error is None:
                self._error = error

    def __len__(self):
        return len(self._open)

    def raise_dropped(self):
        """Raises the error of a round that the script has dropped (Y3)."""
        if self._error is None:
            return
        with self._lock:
            error, self._error = self._error, None
        if error is not None:       # no other thread has raised the error
            self._is_told = True
            raise error

    def tell_dropped(self):
        """Prints the error of a dropped round, unless a call has already raised an error of a
        dropped round."""
        for round_ in list(self._open):
            if round_.is_dropped():
                round_.end_if_over()
        if self._error is not None and not self._is_told:
            print(f'gradpool: {self.job}, a round without a Request: {self._error}',
                  file=sys.stderr, flush=True)

    def await_dropped(self, tensors, timeout_ms):
        """Returns when the dropped rounds of these tensors are over; raise_dropped() then raises
        their error. Timeout: the text names late ranks. Does not wait in the completion thread
        (Y11)."""
        wanted, until_s = set(tensors), time.monotonic() + timeout_ms / 1e3
        if any(round_.handle and not round_.is_dropped() for round_ in self._of(wanted)):
            # frees a Request that only garbage references, such as the frame of a traceback
            _collect()
        for round_ in self._of(wanted):
            if round_.is_dropped() and not is_here():
                try:
                    round_.await_turn(max(int((until_s - time.monotonic()) * 1e3), 1))
                except Timeout:
                    raise
                except GradpoolError:
                    pass

    def _of(self, tensors):
        return [round_ for round_ in list(self._open) if not tensors.isdisjoint(round_.tensors)]

    def cancel(self):
        """Ends all rounds, because the process has left the job."""
        for round_ in list(self._open):
            round_.cancel()
        self._kept.clear()


def _collect():
    """Collects garbage. First waits for another thread that collects, because gc.collect() would do
    nothing meanwhile."""
    is_mine = _collecting.acquire(timeout=_COLLECT_S)
    try:
        gc.collect()
    finally:
        if is_mine:
            _collecting.release()
