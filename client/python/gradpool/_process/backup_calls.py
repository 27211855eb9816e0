"""The calls of a Job that are for backup workers only: ends of rounds, and missed rounds."""
import errno
import functools

from .._native.backup import end_round, skip_round
from .._native.binding import INT_MAX, lib, number
from ..errors import error_of, GradpoolError


class BackupCalls:
    """Part of Job."""

    @functools.cached_property
    def _calls(self):
        return RoundCalls(self)

    def end_round(self, loss=float('nan'), timeout_ms=0):
        """Ends this rank's round in a job with backup workers. Called after one push of each tensor
        (update() with settings on every rank, or push_pull()), and before the wait(). Returns an
        EndOfRound. Unless this one goes_on, the results have landed, the same on all ranks."""
        loss, timeout_ms = float(loss), number(timeout_ms, 'timeout_ms', INT_MAX)
        return self._end_by(lambda handle: end_round(handle, loss, timeout_ms))

    def skip_round(self, timeout_ms=0):
        """Ends this rank's round without a gradient, after passed() has named it; not before the
        first end_round(). Results are written to those of the last push. Returns an EndOfRound; if
        it goes_on, the round is open, and a gradient on the same parameters is wanted."""
        timeout_ms = number(timeout_ms, 'timeout_ms', INT_MAX)
        return self._end_by(lambda handle: skip_round(handle, timeout_ms))

    def _end_by(self, call):
        ends = []
        self._calls.run(lambda handle: ends.append(call(handle)) or 0)
        return ends[0]

    def next_round(self, timeout_ms=0):
        """Fetches the sums of the next round that closed without this rank, into the results of
        its last push_pull(). Returns False if no round is left; push again only then."""
        timeout_ms = number(timeout_ms, 'timeout_ms', INT_MAX)
        return self._calls.run(lib.gp_round_next, timeout_ms) == 1

    def passed(self):
        """Returns the newest closed round whose results this rank lacks; 0: none. A gradient for
        this round will be dropped. Never waits."""
        with self._using() as handle:
            return lib.gp_job_passed(handle)


class RoundCalls:
    """The calls that end or fetch a round in a job with backup workers. If an exception of a signal
    handler interrupts such a call, the call continues in a separate thread, and its result is lost.
    The job then refuses further calls of this kind, because a sum could be left out."""

    def __init__(self, job):
        self._job, self._is_cut = job, False

    def run(self, call, *arguments):
        if self._is_cut:
            raise error_of(-errno.EINTR, f'{self._job}: an exception of a signal handler has '
                           'interrupted end_round(), next_round() or skip_round(), so it is '
                           'unknown which results this rank has; start the job again')
        try:
            return self._job._wait(call, *arguments)
        except GradpoolError:
            raise
        except BaseException:
            self._is_cut = True
            raise
