"""Errors of the library as exceptions: one class for each kind, with errno and the library's
text."""
import errno


class GradpoolError(OSError, RuntimeError):
    """Base class of all errors of this package, and a RuntimeError like those of torch.distributed.
    `errno`: the value of gradpool.h, positive. `strerror`: a sentence with object, expectation,
    value and advice."""

    def __init__(self, number, text):
        super().__init__(number, text)

    def __str__(self):
        return self.strerror


class PeerLost(GradpoolError, ConnectionError):
    """The job has failed: a worker, an aggregator or the service was lost. Join again."""


class Unreachable(GradpoolError, ConnectionError):
    """No service answers at the endpoint, or no endpoint is set. Nothing was sent."""


class Timeout(GradpoolError, TimeoutError):
    """A deadline has passed; the text names the missing ranks. The request still exists."""


class Mismatch(GradpoolError, ValueError):
    """An argument is wrong, or ranks disagree about a size, an operation or the number of ranks."""


class Forked(GradpoolError):
    """The object belongs to the parent process: only the process that joined a job may use it."""


_CLASSES = {
    errno.ECONNRESET: PeerLost,
    errno.EPIPE: PeerLost,
    errno.ESTALE: PeerLost,
    errno.ESHUTDOWN: PeerLost,
    errno.EDESTADDRREQ: Unreachable,
    errno.ECONNREFUSED: Unreachable,
    errno.EHOSTUNREACH: Unreachable,
    errno.ENETUNREACH: Unreachable,
    errno.EHOSTDOWN: Unreachable,
    errno.ETIMEDOUT: Timeout,
    errno.EINVAL: Mismatch,
    errno.EEXIST: Mismatch,
    errno.EPROTO: Mismatch,
    errno.ECHILD: Forked,
}


def error_of(code, text, classes=None):
    """Returns the exception for a negative errno `code` and its text. `classes`: {errno: class}
    with priority over the usual classes."""
    return (_CLASSES | (classes or {})).get(-code, GradpoolError)(-code, text)


def mismatch(text):
    """Returns a Mismatch that this process has detected before sending anything."""
    return Mismatch(errno.EINVAL, text)


def overdue(timeout, limit_s, raised_by):
    """Returns a Timeout that names its limit and the setting for it, in place of the library's
    advice."""
    told = str(timeout).partition('. To wait longer')[0].partition('; call gp_round_end()')[0]
    return Timeout(errno.ETIMEDOUT, f'{told}. The timeout of the wait is over: look at the '
                   f'ranks that are missing, or raise {raised_by}, now {limit_s:g} s')


def disagreement(texts, ranks):
    """Returns 'ranks disagree: rank 0 brought ...; ranks 1, 2 brought ...'."""
    who = {}
    for text, rank in zip(texts, ranks):
        who.setdefault(text, []).append(str(rank))
    return 'ranks disagree: ' + '; '.join(
        f"{'rank' if len(of) == 1 else 'ranks'} {', '.join(of)} brought {text}"
        for text, of in who.items())
