"""Open rounds of a job of this process, and the Requests through which a script waits for them."""
import contextlib
import errno
import sys
import threading
import weakref

from .._native.binding import check, INT_MAX, lib, number
from ..errors import error_of, GradpoolError, Timeout
from .completion import complete, is_here

SIGNALS_MS = 200    # longest delay of a Python signal handler


class Request:
    """A round in progress. If the script drops the Request, the round continues: its buffers are
    kept until the end (Y2), and the completion thread ends it (Y11)."""
    __slots__ = ('_round',)

    def __init__(self, round_):
        self._round = round_

    def wait(self, timeout_ms=0):
        """Returns when the result is in place and the script may write to the gradient. Timeout:
        not finished; call wait() again. Any other error ends the request, and later calls raise it
        again."""
        self._round.wait(number(timeout_ms, 'timeout_ms', INT_MAX))

    def done(self, timeout_ms=0):
        """Returns True if wait() will not block; False if the round is open after `timeout_ms`."""
        return self._round.done(timeout_ms)

    def __del__(self):
        # a failed push has no round; at the end of the interpreter no thread can start
        with contextlib.suppress(AttributeError, RuntimeError):
            if self._round.is_left_open() and not sys.is_finalizing():
                self._round.drop()


class Round:
    """The round of a Request. `rounds` refers to the round until its end.

    tensors  tensors of the round, which no other round may use meanwhile"""
    __slots__ = ('_rounds', 'tensors', 'is_dropped', '_handle', '_loan', '_error', '__weakref__')

    def __init__(self, rounds, tensors, handle, loan):
        self._rounds, self.tensors, self.is_dropped = rounds, tensors, False
        self._handle, self._loan, self._error = handle, loan, None
        rounds.hold(self)

    def wait(self, timeout_ms):
        if self._handle is not None:
            # leave() of the job ends this call; close() of the client waits for it
            with self._rounds.job.client._using():
                self._wait(timeout_ms)
        if self._error is not None:
            raise self._error

    def _wait(self, timeout_ms):
        # leave() in another thread removes the handle from this object, not from the library
        handle = self._handle
        if handle is None:
            return
        left_ms = timeout_ms or self._rounds.job.client._timeout_ms
        while left_ms > SIGNALS_MS and lib.gp_poll(handle, SIGNALS_MS) == 0:
            # between two of these waits Python raises a pending KeyboardInterrupt
            left_ms -= SIGNALS_MS
        try:
            check(lib.gp_wait(handle, left_ms))
        except Timeout:
            raise
        except GradpoolError as error:
            self._finish(error)
        else:
            self._finish(None)

    def done(self, timeout_ms):
        if self._handle is None:
            return True
        with self._rounds.job.client._using():
            handle = self._handle
            return handle is None or lib.gp_poll(handle, timeout_ms) == 1

    def cancel(self):
        """Ends the round after the job was left. The library has freed the handle."""
        self._finish(error_of(-errno.ECANCELED, f"job '{self._rounds.job.name}' has been left: "
                              'join the job again'))

    def is_left_open(self):
        """Returns whether the round is open and was begun by this process."""
        return self._handle is not None and self._rounds.job.is_of_this_process()

    def drop(self):
        """Lets the completion thread end the round (Y11). Acquires no lock, because a destructor
        calls it at any point of the program."""
        self.is_dropped = True
        complete(_Dropped(self))

    def _finish(self, error):
        self._handle, self._error = None, error
        self._loan.end()
        self._rounds.release(self, error)


class _Dropped:
    """The item of a dropped round for the completion thread. If the script has dropped the job,
    too, the thread leaves the job."""
    __slots__ = ('_round',)

    def __init__(self, round_):
        self._round = weakref.ref(round_)

    def waits_for(self):
        return self._round()

    def is_over(self):
        round_ = self._round()
        with contextlib.suppress(GradpoolError):    # the job's next push raises the error
            if round_ is not None and not round_.done(0):
                return False
            if round_ is not None:
                round_.wait(1)
        return True


class Rounds:
    """The open rounds of a job, whose buffers the library uses."""

    def __init__(self, job):
        self.job = job
        self._open = set()
        # error of a dropped round; whether a call has raised one
        self._error, self._is_told = None, False
        self._changed = threading.Condition(threading.Lock())

    def hold(self, round_):
        with self._changed:
            self._open.add(round_)

    def release(self, round_, error):
        """Removes a finished round. Stores the first error of a dropped round for the next push or
        leave()."""
        with self._changed:
            self._open.discard(round_)
            self._changed.notify_all()
            if not round_.is_dropped:
                self._is_told = self._is_told or error is not None
            elif self._error is None:
                self._error = error

    def __len__(self):
        return len(self._open)

    def raise_dropped(self):
        """Raises the stored error of a dropped round (Y3)."""
        if self._error is not None:
            with self._changed:
                error, self._error, self._is_told = self._error, None, True
            raise error

    def tell_dropped(self):
        """Prints the stored error of a dropped round, unless a call of this job has raised one."""
        if self._error is not None and not self._is_told:
            print(f'gradpool: {self.job}, a round without a Request: {self._error}',
                  file=sys.stderr, flush=True)

    def await_dropped(self, tensors, timeout_ms):
        """Returns when all dropped rounds of these tensors have ended, or after the time-out."""
        with self._changed:
            dropped = {round_ for round_ in self._open
                       if round_.is_dropped and not set(tensors).isdisjoint(round_.tensors)}
            if not is_here():
                self._changed.wait_for(lambda: self._open.isdisjoint(dropped), timeout_ms / 1e3)

    def cancel(self):
        """Ends all rounds after the job was left."""
        with self._changed:
            left, self._open = self._open, set()
        for round_ in left:
            round_.cancel()
