"""Exchanges short texts among ranks without blocking. Each rank sends one text. When all ranks have
sent one, each rank gets all texts. Nothing is declared before the first text."""
import contextlib

import torch

from ..errors import GradpoolError


class Notices:
    """Text exchange of `count` ranks of a job. `members`: as in Job.declare(). A text has at most 4
    * `words` bytes. Several threads may call find() and leave(): only one thread gets the texts."""

    def __init__(self, job, name, members, count, words):
        self._job, self._name, self._members = job, name, members
        self._count, self._words, self._tensor = count, words, None
        self._open = {}     # the present exchange: Request -> the tensor of all texts

    def declare(self):
        """Declares the tensor in advance, because the coordinator may be away when the first text
        is sent."""
        if self._tensor is None:
            self._tensor = self._job.declare(self._name, self._words, 'int32', ranks=self._members)

    def is_left(self):
        """Returns whether this rank has sent a text and some other rank has not."""
        return bool(self._open)

    def leave(self, raw):
        """Sends this rank's text, as bytes. Raises an error while is_left() is true."""
        self.declare()
        words = torch.zeros(self._words, dtype=torch.int32)
        if raw:
            raw = bytearray(raw[:4 * self._words])
            words.view(torch.uint8)[:len(raw)] = torch.frombuffer(raw, dtype=torch.uint8)
        whole = torch.empty(self._count * self._words, dtype=torch.int32)
        self._open[self._job.push_pull(self._tensor, words, whole, 'gather')] = whole

    def find(self, timeout_ms=0):
        """Returns the texts of all ranks by position. None: some ranks have not sent their texts,
        or another thread has got the texts."""
        for request in list(self._open):
            whole = self._open.pop(request, None) if request.done(timeout_ms) else None
            if whole is not None:
                request.wait()
                return [bytes(block.tolist()).rstrip(b'\0').decode(errors='ignore')
                        for block in whole.view(torch.uint8).view(self._count, -1)]
        return None

    def end(self):
        with contextlib.suppress(GradpoolError):
            if self._tensor is not None:
                self._job.remove(self._tensor)
