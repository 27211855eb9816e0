"""Rounds that a job of this process has open, and the Requests with which a script awaits them."""
import contextlib
import errno
import sys
import threading
import weakref

from .._native.binding import check, INT_MAX, lib, number
from ..errors import error_of, GradpoolError, Timeout
from .completion import complete, is_here

SIGNALS_MS = 200    # longest time until the Python handler of a signal runs


class Request:
    """A round in progress. A script may drop the Request: the round goes on, its buffers stay alive
    until the end (Y2), and the thread of Y11 completes it."""
    __slots__ = ('_round',)

    def __init__(self, round_):
        self._round = round_

    def wait(self, timeout_ms=0):
        """Returns when every result is in place and the gradient may be written again. Timeout: not
        yet; wait again. Any other error ends the request, and later calls raise it again."""
        self._round.wait(number(timeout_ms, 'timeout_ms', INT_MAX))

    def done(self, timeout_ms=0):
        """Returns True when wait() will not block; False: not yet, also after `timeout_ms`."""
        return self._round.done(timeout_ms)

    def __del__(self):
        # no round: the push has failed. A thread cannot be started when the interpreter ends
        with contextlib.suppress(AttributeError, RuntimeError):
            if self._round.is_left_open() and not sys.is_finalizing():
                self._round.drop()


class Round:
    """The round of a Request; `rounds` holds it until its end.

    tensors  those that no other round may use meanwhile"""
    __slots__ = ('_rounds', 'tensors', 'is_dropped', '_handle', '_loan', '_error', '__weakref__')

    def __init__(self, rounds, tensors, handle, loan):
        self._rounds, self.tensors, self.is_dropped = rounds, tensors, False
        self._handle, self._loan, self._error = handle, loan, None
        rounds.hold(self)

    def wait(self, timeout_ms):
        if self._handle is not None:
            # leaving the job ends this call; closing the client does not
            with self._rounds.job.client._using():
                self._wait(timeout_ms)
        if self._error is not None:
            raise self._error

    def _wait(self, timeout_ms):
        # leave() in another thread takes the handle from this object, and not from the library
        handle = self._handle
        if handle is None:
            return
        left_ms = timeout_ms or self._rounds.job.client._timeout_ms
        while left_ms > SIGNALS_MS and lib.gp_poll(handle, SIGNALS_MS) == 0:
            left_ms -= SIGNALS_MS  # a Ctrl-C is raised between two of these waits
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
        """Ends the round because the job was left: the library frees the handle."""
        self._finish(error_of(-errno.ECANCELED, f"job '{self._rounds.job.name}' has been left: "
                              'join the job again'))

    def is_left_open(self):
        """Returns True for a round that is not over, in the process that has begun it."""
        return self._handle is not None and self._rounds.job.is_of_this_process()

    def drop(self):
        """Leaves the round to the thread of Y11. Takes no lock of the job: a destructor may run
        anywhere."""
        self.is_dropped = True
        complete(_Dropped(self))

    def _finish(self, error):
        self._handle, self._error = None, error
        self._loan.end()
        self._rounds.release(self, error)


class _Dropped:
    """The item of a dropped round for the thread of Y11. A job that the script has dropped, too, is
    left, with its rounds."""
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
    """The open rounds of a job, whose buffers are lent."""

    def __init__(self, job):
        self.job = job
        self._open = set()
        self._error, self._is_told = None, False    # of a dropped round; whether a call raised one
        self._changed = threading.Condition(threading.Lock())

    def hold(self, round_):
        with self._changed:
            self._open.add(round_)

    def release(self, round_, error):
        """Forgets a round that is over. Keeps the first error of a dropped one, for the next push
        or for leave()."""
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
        """Raises the error of a round that the script has dropped (Y3)."""
        if self._error is not None:
            with self._changed:
                error, self._error, self._is_told = self._error, None, True
            raise error

    def tell_dropped(self):
        """Prints the error of a dropped round, unless a call has raised one of this job."""
        if self._error is not None and not self._is_told:
            print(f'gradpool: {self.job}, a round without a Request: {self._error}',
                  file=sys.stderr, flush=True)

    def await_dropped(self, tensors, timeout_ms):
        """Returns when the dropped rounds of these tensors are over, or after the time-out."""
        with self._changed:
            dropped = {round_ for round_ in self._open
                       if round_.is_dropped and not set(tensors).isdisjoint(round_.tensors)}
            if not is_here():
                self._changed.wait_for(lambda: self._open.isdisjoint(dropped), timeout_ms / 1e3)

    def cancel(self):
        """Ends all rounds, because the job has been left."""
        with self._changed:
            left, self._open = self._open, set()
        for round_ in left:
            round_.cancel()
