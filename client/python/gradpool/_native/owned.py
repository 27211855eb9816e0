"""Handles of the library that live in one process and end once.

The library asks that nothing is destroyed while a call uses it. Here that is kept for scripts with
threads: an end first turns new calls away, then waits for those under way."""
import errno
import os
import threading

from ..errors import Forked, GradpoolError


class _Use:
    """A block in which a handle does not end. Written by hand: each push and each wait makes one,
    and contextlib's cost as much as the push itself."""
    __slots__ = ('_owned',)

    def __init__(self, owned):
        self._owned = owned

    def __enter__(self):
        owned = self._owned
        owned._live()   # before the lock: in a forked child it may be held for ever
        with owned._guard:
            handle = owned._handle
            if handle is None:
                owned._live()   # raises the reason
            owned._users += 1
        return handle

    def __exit__(self, *error):
        owned = self._owned
        with owned._guard:
            owned._users -= 1
            if owned._handle is None:   # the thread in end() waits for the last user
                owned._idle.notify_all()


class Owned:
    """An object with an end, in the process that made it (Y4). Subclasses define the
    end in _end()."""

    def __init__(self, handle):
        self._handle = handle
        self._process = os.getpid()
        self._users = 0
        self._guard = threading.Lock()
        self._idle = threading.Condition(self._guard)

    def _live(self):
        if os.getpid() != self._process:
            raise Forked(errno.ECHILD, f'this {type(self).__name__} belongs to process '
                         f'{self._process}; a forked child must not use it: connect again there')
        if self._handle is None:
            raise GradpoolError(errno.EBADF, f'this {type(self).__name__} has been closed; '
                                'connect or join again')
        return self._handle

    def _using(self):
        """A block with the handle, which does not end before the block does."""
        return _Use(self)

    def _close(self):
        """Ends it once, and never in a forked child."""
        if os.getpid() != self._process:
            return
        with self._idle:
            handle, self._handle = self._handle, None
        if handle is not None:
            self._end(handle)

    def _wait_for_users(self):
        with self._idle:
            self._idle.wait_for(lambda: self._users == 0)

    def _end(self, handle):
        raise NotImplementedError

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._close()

    def __del__(self):
        if getattr(self, '_handle', None) is not None:
            self._close()
