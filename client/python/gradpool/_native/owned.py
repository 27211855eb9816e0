"""Handles of the library, each of which belongs to one process and ends once.

A handle must not be destroyed while a call uses it. In a script with threads this could happen.
Therefore the end of a handle first refuses new calls, then waits for running ones."""
import errno
import os
import threading

from ..errors import Forked, GradpoolError


class _Use:
    """A block during which a handle does not end. Each push and each wait creates one. contextlib
    would cost as much as the push itself, so the class has its own methods."""
    __slots__ = ('_owned',)

    def __init__(self, owned):
        self._owned = owned

    def __enter__(self):
        owned = self._owned
        owned._live()   # this check comes before the lock, which a forked child might never acquire
        with owned._guard:
            handle = owned._handle
            if handle is None:
                owned._live()   # this call raises the reason
            owned._users += 1
        return handle

    def __exit__(self, *error):
        owned = self._owned
        with owned._guard:
            owned._users -= 1
            if owned._handle is None:   # the last user wakes the thread in end()
                owned._idle.notify_all()


class Owned:
    """An object that ends once, in the process that created it (Y4). A subclass defines _end()."""

    def __init__(self, handle):
        self._handle = handle
        self._process = os.getpid()
        self._users = 0
        self._guard = threading.Lock()
        self._idle = threading.Condition(self._guard)

    def is_of_this_process(self):
        """Returns False in a forked child of the process that created the object."""
        return os.getpid() == self._process

    def _live(self):
        if not self.is_of_this_process():
            raise Forked(errno.ECHILD, f'this {type(self).__name__} belongs to process '
                         f'{self._process}; a forked child must not use it: connect again there')
        if self._handle is None:
            raise GradpoolError(errno.EBADF, f'this {type(self).__name__} has been closed; '
                                'connect or join again')
        return self._handle

    def _using(self):
        """Returns a block with the handle. The handle does not end before the block does."""
        return _Use(self)

    def _close(self):
        """Ends the object once, and never in a forked child."""
        if not self.is_of_this_process():
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
