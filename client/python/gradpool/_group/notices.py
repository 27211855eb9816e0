"""Notices between ranks, without waiting. Each rank sends a text; when all ranks have sent one,
each rank gets all of them. Nothing is sent or declared before the first notice."""
import contextlib

import torch

from ..errors import GradpoolError


class Notices:
    """Notices of `count` ranks of a job. `members`: as in Job.declare(). A text has at most 4 *
    `words` bytes."""

    def __init__(self, job, name, members, count, words):
        self._job, self._name, self._members = job, name, members
        self._count, self._words = count, words
        self._tensor = self._request = self._whole = None

    def declare(self):
        """Declares in advance, because the coordinator may be away when a notice is needed."""
        if self._tensor is None:
            self._tensor = self._job.declare(self._name, self._words, 'int32', ranks=self._members)

    def is_left(self):
        """Returns whether this rank's text is still pending: not all ranks have sent one."""
        return self._request is not None

    def leave(self, raw):
        """Sends this rank's text, as bytes. Not while is_left() is true."""
        self.declare()
        words = torch.zeros(self._words, dtype=torch.int32)
        if raw:
            raw = bytearray(raw[:4 * self._words])
            words.view(torch.uint8)[:len(raw)] = torch.frombuffer(raw, dtype=torch.uint8)
        self._whole = torch.empty(self._count * self._words, dtype=torch.int32)
        self._request = self._job.push_pull(self._tensor, words, self._whole, 'gather')

    def find(self, timeout_ms=0):
        """Returns all ranks' texts by position when all ranks have sent theirs; None: not yet."""
        if self._request is None or not self._request.done(timeout_ms):
            return None
        request, self._request = self._request, None
        request.wait()
        return [bytes(block.tolist()).rstrip(b'\0').decode(errors='ignore')
                for block in self._whole.view(torch.uint8).view(self._count, -1)]

    def end(self):
        """Ends the notices."""
        with contextlib.suppress(GradpoolError):
            if self._tensor is not None:
                self._job.remove(self._tensor)
