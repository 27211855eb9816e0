"""Handles that asynchronous calls return, for poll() and synchronize()."""
import sys

from ...errors import mismatch
from .sequences import NamedOperation


class Handle:
    """An operation in progress, and the function that returns its result at the end."""

    def __init__(self, operation, result):
        self._operation, self._result = operation, result

    def __del__(self):
        """Hands the operation to the completion thread, because the script has dropped the
        handle."""
        if not self._operation.is_settled() and not sys.is_finalizing():
            self._operation.let_go()

    def wait(self):
        """Returns the result. Raises the operation's error."""
        self._operation.wait()
        return self._result()

    def is_over(self):
        return self._operation.look() or self._operation.is_completed()

    def brought(self):
        """Returns the descriptions of all ranks, after wait() has raised a disagreement."""
        return self._operation.brought

    def then(self, make):
        """Returns this Handle with a changed result: make() is called with the former result."""
        former = self._result
        self._result = lambda: make(former())
        return self

    def rest(self, limit_ms):
        """Waits for at most `limit_ms`."""
        self._operation.rest(limit_ms)


def begin(ranks, call, name, result):
    """Starts a call under a name and returns a Handle. Name None: calls of the same kind are
    matched by their order."""
    ranks.door.check_body(call.kind if name is None else f"{call.kind} '{name}'")
    return Handle(NamedOperation(ranks.named(call.kind, name), call).start(), result)


def poll(handle):
    """Returns whether synchronize() would return at once."""
    return _checked(handle).is_over()


def synchronize(handle):
    """Waits for an asynchronous operation and returns its result."""
    return _checked(handle).wait()


def _checked(handle):
    if not isinstance(handle, Handle):
        raise mismatch(f'a {type(handle).__name__}, expected a handle of an asynchronous call')
    return handle
