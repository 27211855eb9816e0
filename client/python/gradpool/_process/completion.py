"""The completion thread: completes items for which no caller waits. A process has one such thread,
started at the first item.

An item has two methods:

    waits_for()   the Request that the item needs now; None: another item must end first
    is_over()     completes the item if possible; False: the item is not complete. Never blocks

The thread sleeps in the library, in the wait of the first item that has a Request. The thread
detects new and finished items at most SLICE_MS later, and checks items of complete_slowly() every
SLOW_S. Without items the thread sleeps forever. Items that are not over when the process ends are
abandoned."""
import contextlib
import os
import queue
import threading
import time

from ..errors import GradpoolError
from .threads import start

SLICE_MS = 10
SLOW_S = 0.2
# Number of the oldest items that are checked each time, and number of other items that are checked
# each time.
_OLDEST, _OTHERS = 16, 64


class _End:
    """The item that ends the thread."""

    def waits_for(self):
        return None

    def is_over(self):
        raise SystemExit


class _Completer:
    def __init__(self):
        self._new = queue.SimpleQueue()
        self._turn = 0
        self.slow, self._slow_due_s = [], 0.0
        self._thread = start(self._run, 'gradpool', lambda: self.add(_End()))

    def add(self, item):
        self._new.put(item)

    def is_here(self):
        return threading.current_thread() is self._thread

    def _run(self):
        items = []
        while True:
            items += self._arrived(may_sleep=not items and not self.slow)
            self._sleep(items)
            items = self._left_of(items)
            self._check_slow()

    def _left_of(self, items):
        """Returns the items to check. If there are many items, most of them are queued behind the
        oldest items. Therefore the oldest items are checked each time, together with a few of the
        other items, which differ each time."""
        first = _OLDEST + self._turn * _OTHERS
        looked = items[:_OLDEST], items[first:first + _OTHERS]
        self._turn = self._turn + 1 if first + _OTHERS < len(items) else 0
        old, others = ([item for item in some if not item.is_over()] for some in looked)
        return old + items[_OLDEST:first] + others + items[first + _OTHERS:]

    def _arrived(self, may_sleep):
        found = [self._new.get()] if may_sleep else []
        while not self._new.empty():
            found.append(self._new.get())
        return found

    def _sleep(self, items):
        request = next(filter(None, (item.waits_for() for item in items[:_OLDEST])), None)
        # is_over() also raises errors of the item
        with contextlib.suppress(GradpoolError, queue.Empty):
            if request:
                request.done(SLICE_MS)
            elif items or self.slow:
                items.append(self._new.get(timeout=SLICE_MS / 1e3 if items else SLOW_S))

    def _check_slow(self):
        if self.slow and time.monotonic() >= self._slow_due_s:
            slow, self.slow = self.slow, []
            self.slow += [item for item in slow if not item.is_over()]
            self._slow_due_s = time.monotonic() + SLOW_S


_lock = threading.RLock()  # reentrant: a destructor may call complete() while complete() runs
_completer = None


def complete(item):
    """Hands `item` to the completion thread."""
    global _completer
    with _lock:
        if _completer is None:
            _completer = _Completer()
        _completer.add(item)


def complete_slowly(item):
    """Called in the completion thread, for an item that may be completed SLOW_S late."""
    _completer.slow.append(item)


def is_here():
    """Returns whether the calling thread is the completion thread, which must not wait for
    itself."""
    return _completer is not None and _completer.is_here()


def _forget():
    """Resets the module in a forked child, which has no threads of its parent."""
    global _completer, _lock
    _completer, _lock = None, threading.RLock()


os.register_at_fork(after_in_child=_forget)
