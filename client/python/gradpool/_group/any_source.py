"""Receives a message from the first rank that sends one. A message is a round of a tensor of two
ranks. A receive from any rank therefore begins a round with every rank that may send. The caller
gets the first message. Later messages are stored for the next receive of the same tag and size
(Y12)."""
import collections
import math
import threading

from .operations import Operation


class Mailbox:
    """The receives of one tag and size that have begun. Their Operations are created with this
    object as their `group`. A receive has no deadline, because perhaps no caller ever waits for the
    message. A failed receive does not fail other operations.

    begin  function of (mailbox, source): starts a receive, returns its Operation and its memory"""
    timeout_s, failure = math.inf, None

    def __init__(self, begin):
        self._begin = begin
        self.open = set()
        self._lock = threading.Lock()
        # source -> queue of results of begin()
        self._begun = collections.defaultdict(collections.deque)
        # source -> number of Claims that would accept a message of this source
        self._wanted = collections.Counter()

    def fail(self, error):
        """Does nothing when a source has left, because other sources may still send."""

    def expect(self, sources):
        """Adds a Claim that accepts a message from any of the sources."""
        for source in sources:
            with self._lock:
                self._wanted[source] += 1
                is_short = len(self._begun[source]) < self._wanted[source]
            if is_short:
                self._begun[source].append(self._begin(self, source))

    def first(self, source):
        """Returns the Operation of the next message from this source."""
        return self._begun[source][0][0]

    def take(self, source, sources):
        """Removes and returns the next message from `source`, for a Claim that accepts any of
        `sources`."""
        with self._lock:
            self._wanted.subtract(sources)
            return self._begun[source].popleft()[1]


class Claim(Operation):
    """A receive from one of `sources`. The completion thread completes the receive.
    `unload`(message) copies the message to its destination; `crossing` moves the message to the
    device."""

    def __init__(self, group, what, mailbox, sources, result, crossing, unload):
        super().__init__(group, what, (), result)
        self._mailbox, self._sources = mailbox, sources
        self._crossing, self._unload = crossing, unload
        self._source = None

    def start(self):
        self._mailbox.expect(self._sources)
        super().start()
        self.hand_over()
        return self

    def _source_rank(self):
        """Called by torch when the operation has ended."""
        return self._source

    def waits_for(self):
        return next(filter(None, (self._mailbox.first(source).waits_for()
                                  for source in self._sources)), None)

    def _is_ready(self):
        """Returns whether a message has arrived, or all sources have left."""
        over = [source for source in self._sources if self._mailbox.first(source).is_over()]
        good = [source for source in over if self._mailbox.first(source).is_success()]
        if good or len(over) == len(self._sources):
            self._source = (good or over)[0]
        return self._source is not None

    def _settle(self, limit_s):
        if self._source is None:
            self.end(self._overdue(f'no message arrived from ranks {self._sources}'))
            return
        error = self._mailbox.first(self._source).exception()
        if error is None:
            message = self._mailbox.take(self._source, self._sources)
            self._land((self._crossing,), lambda: self._unload(message))
        self.end(error)
