"""Receives from the first rank that sends. A message is a round of a tensor of two ranks, so such a
receive begins a round with every rank that may send. The first message is taken. The others stay
for the next receive of the same tag and size from their ranks (Y12)."""
import collections
import math
import threading

from .operations import Operation


class Mailbox:
    """Receives of one tag and size that have begun. It is what their Operations have for a group:
    one that nobody may ever wait for has no deadline, and fails nobody else.

    begin  of (this, source) starts one more: its Operation, and where it comes to"""
    timeout_s, failure = math.inf, None

    def __init__(self, begin):
        self._begin = begin
        self.open = set()
        self._lock = threading.Lock()
        self._begun = collections.defaultdict(collections.deque)    # source -> results of begin()
        # source -> number of claims that would take one of its messages
        self._wanted = collections.Counter()

    def fail(self, error):
        """Waits for messages; a rank that has left may be one of several sources."""

    def expect(self, sources):
        """Records that one more message is wanted, from any of the sources."""
        for source in sources:
            with self._lock:
                self._wanted[source] += 1
                is_short = len(self._begun[source]) < self._wanted[source]
            if is_short:
                self._begun[source].append(self._begin(self, source))

    def first(self, source):
        """Returns the Operation of the next message from that rank."""
        return self._begun[source][0][0]

    def take(self, source, sources):
        """Returns the message from `source`, for a caller that accepts any of `sources`."""
        with self._lock:
            self._wanted.subtract(sources)
            return self._begun[source].popleft()[1]


class Claim(Operation):
    """A receive from one of `sources`, completed by the thread of the process. `unload`(message)
    puts the message into its place; `crossing` moves it to the device."""

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
        """Called by torch when the work is over."""
        return self._source

    def waits_for(self):
        return next(filter(None, (self._mailbox.first(source).waits_for()
                                  for source in self._sources)), None)

    def _is_ready(self):
        """Returns when a message has come, or none can come because all sources have left."""
        over = [source for source in self._sources if self._mailbox.first(source).is_over()]
        good = [source for source in over if self._mailbox.first(source).is_success()]
        if good or len(over) == len(self._sources):
            self._source = (good or over)[0]
        return self._source is not None

    def _settle(self, limit_s):
        if self._source is None:
            self.end(self._overdue(f'nothing came from ranks {self._sources}'))
            return
        error = self._mailbox.first(self._source).exception()
        if error is None:
            message = self._mailbox.take(self._source, self._sources)
            self._land((self._crossing,), lambda: self._unload(message))
        self.end(error)
