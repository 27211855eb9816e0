"""Handles of the library. Each handle belongs to one process and ends once.

The library requires that no object is destroyed while a call uses the object. In scripts with
threads this module ensures this: the end of a handle first refuses new calls, then waits for the
calls of other threads that are in progress. Calls of the ending thread itself are not awaited,
because a signal handler has interrupted them. Either the handler itself closes the object, or the
handler has raised an exception before __exit__() could end the use."""
import errno
import os
import threading
from threading import get_ident

from ..errors import Forked, GradpoolError
from .failing import leaving_with


class _Use:
    """A block during which a handle does not end. Every push and every wait is in such a block. The
    class does not use contextlib, which would cost as much as the push."""
    __slots__ = ('_owned',)

    def __init__(self, owned):
        self._owned = owned

    def __enter__(self):
        owned = self._owned
        owned._live()
        owned._users.append(get_ident())
        # the handle is read after append(), so that a thread that ends the handle waits for this
        # user
        handle = owned._handle
        if handle is None:
            self.__exit__()
            owned._live()   # raises an error with the reason, if the handle has ended
        return handle

    def __exit__(self, *error):
        owned = self._owned
        owned._users.remove(get_ident())
        if owned._handle is None:   # the thread in end() waits for the last user
            with owned._idle:
                owned._idle.notify_all()


class Owned:
    """An object that can end once, and only in the process that created it (Y4). A subclass defines
    _end()."""

    def __init__(self, handle):
        self._handle = handle
        self._process = os.getpid()
        # threads that are in a block with the handle; no lock protects the list
        self._users = []
        self._idle = threading.Condition()      # reentrant: a signal's handler may close the object

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
            self._idle.wait_for(lambda: set(self._users) <= {get_ident()})

    def _end(self, handle):
        raise NotImplementedError

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        with leaving_with(error):
            self._close()

    def __del__(self):
        if getattr(self, '_handle', None) is not None:
            self._close()
