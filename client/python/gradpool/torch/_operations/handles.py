"""Handles that asynchronous calls return: to be passed to poll() and synchronize()."""
import sys

from ...errors import mismatch
from .sequences import NamedOperation


class Handle:
    """An operation under way, and how its result is fetched once it is over."""

    def __init__(self, operation, result):
        self._operation, self._result = operation, result

    def __del__(self):
        """A dropped handle's operation is completed all the same, by the process's thread."""
        if not self._operation.is_settled() and not sys.is_finalizing():
            self._operation.let_go()

    def wait(self):
        """The result. Raises what went wrong."""
        self._operation.wait()
        return self._result()

    def is_over(self):
        return self._operation.look() or self._operation.is_completed()

    def brought(self):
        """The words of each rank, if wait() has raised that they disagree."""
        return self._operation.brought

    def then(self, make):
        """This Handle, of what make() makes of its result."""
        former = self._result
        self._result = lambda: make(former())
        return self

    def rest(self, limit_ms):
        """Waits for this time."""
        self._operation.rest(limit_ms)


def begin(ranks, call, name, result):
    """Starts a call under a name, or without one (None): then calls of its kind are matched by
    their order. Returns its Handle."""
    return Handle(NamedOperation(ranks.named(call.kind, name), call).start(), result)


def poll(handle):
    """Whether synchronize() would return at once."""
    return _checked(handle).is_over()


def synchronize(handle):
    """Waits for an asynchronous operation, and returns its result."""
    return _checked(handle).wait()


def _checked(handle):
    if not isinstance(handle, Handle):
        raise mismatch(f'a {type(handle).__name__}, expected what an asynchronous call returns')
    return handle
