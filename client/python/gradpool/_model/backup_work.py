"""Bodies of a loop over batches() that a rank leaves when their round has closed without its
gradient: Backup(stragglers='interrupt').

Hooks of the model's modules check before each forward() whether the round is closed. The exception
of such a hook ends the statement "with attachment.work():", and no more. In backward() the hooks do
nothing, because a gradient may be announced in part. A body that was left changes no model: the
buffers get their former values, and the parameters lose the gradients of earlier passes."""
import sys
import threading
import weakref

import torch

from .._native.backup import INTERRUPT
from ..errors import mismatch

# Modules with the functions through which a script calls torch's engine.
_BACKWARD = 'torch.autograd', 'torch.autograd.graph'


class _Left(BaseException):
    """Leaves a body. Derived from BaseException, so that "except Exception" in the forward() of a
    script does not catch it. `work`: the Work whose statement catches it."""

    def __init__(self, work):
        super().__init__('the round of this body is closed, so the body was left. Let '
                         '"with attachment.work():" end this exception')
        self.work = work


class Work:
    """The result of attachment.work(), used in a with statement.

    is_left  whether the rank has left the statement before its end, because its round was closed"""

    def __init__(self, works):
        self._works, self.is_left = works, False

    def __enter__(self):
        self._works.enter(self)
        return self

    def __exit__(self, kind, error, trace):
        self.is_left = isinstance(error, _Left) and error.work is self
        self._works.leave(self.is_left)
        return self.is_left


class Works:
    """The with statements of one attached model.

    was_left  whether the last body was left
    rounds    BackupRounds of the model, which set this attribute; a weak reference"""

    def __init__(self, job, model, parameters, stragglers):
        self.rounds, self._job = None, job
        self._interrupts = stragglers == INTERRUPT
        self._parameters, self._buffers = list(parameters.values()), Buffers(model.module)
        self._work = self._thread = None
        self._gradients = 0     # gradients of this rank at the begin of the with statement
        self._is_in_body = self._is_used = self.was_left = False
        self._hooks = [part.register_forward_pre_hook(_Poll(self))
                       for part in model.modules() if self._interrupts and
                       not isinstance(part, torch.jit.ScriptModule)]

    def close(self):
        """Removes the hooks of the model."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    # ---- the loop over batches() ----

    def begin_body(self):
        self._is_in_body, self._is_used, self.was_left = True, False, False

    def end_body(self):
        self._is_in_body = False

    def check_used(self):
        """Raises Mismatch if ranks shall leave bodies, and the last body used no work()."""
        if self._interrupts and not self._is_used:
            raise mismatch(f"{self._job}: stragglers='interrupt', but the body of the loop over "
                           'batches() has nothing that a rank can leave. Put forward() and '
                           'backward() into "with attachment.work():", or leave stragglers out of '
                           'Backup()')

    # ---- one with statement ----

    def enter(self, work):
        if self._work is not None:
            raise mismatch('attachment.work() within attachment.work(): a rank would leave the '
                           'inner statement alone. Use one "with attachment.work():" in each body')
        if not self._is_in_body:
            raise mismatch('attachment.work() outside of a loop over batches(), which knows the '
                           'round of the work. Write "for batch in attachment.batches(loader, '
                           'rounds=...):" around it')
        if self._is_used:
            raise mismatch('attachment.work() a second time in one body: a rank that has left the '
                           'first statement would begin the second. Put all passes of the body '
                           'into one "with attachment.work():"')
        self._work, self._thread, self._is_used = work, threading.get_ident(), True
        self._gradients = self.rounds.gradients
        if self._interrupts:
            self._buffers.note()

    def leave(self, is_left):
        self._work = self._thread = None
        self.was_left = is_left
        if is_left:
            self._buffers.restore()
            for one in self._parameters:
                one.grad = None     # passes under no_sync() have added a part of the gradient

    def poll(self):
        """Leaves the with statement if the round of its gradient is closed. The first gradient of a
        rank is always computed, because lanes learn with it where results are written. After its
        backward() a body is not left: .grad then has the mean of the round."""
        if self._work is None or self._thread != threading.get_ident():
            return
        if not 0 < self.rounds.gradients == self._gradients:
            return
        if self._job.passed() > self.rounds.number and not _is_in_backward():
            raise _Left(self._work)


def _is_in_backward():
    """Returns whether torch's engine calls the present function, as with checkpoints, which call
    forward() again."""
    frame = sys._getframe()
    while frame is not None:
        if frame.f_globals.get('__name__') in _BACKWARD:
            return True
        frame = frame.f_back
    return False


class _Poll:
    """Called before each forward() of a module. In a copy of the module it has no effect."""

    def __init__(self, works=None):
        self._works = weakref.ref(works) if works else lambda: None

    def __call__(self, *_):
        works = self._works()
        if works is not None:
            works.poll()

    def __reduce__(self):
        return _Poll, ()


class Buffers:
    """Values of a module's buffers, such as the running statistics of a BatchNorm, at the begin of
    a body. A buffer that bodies do not change is copied once."""

    def __init__(self, module):
        self._module = module
        self._noted = {}        # (id of a part, name) -> (part, buffer, its version, its copy)

    def note(self):
        noted = {}
        for part in self._module.modules():
            for name, buffer in part._buffers.items():
                if buffer is not None:
                    noted[id(part), name] = self._copied(part, name, buffer)
        self._noted = noted

    def _copied(self, part, name, buffer):
        known = self._noted.get((id(part), name))
        if known is not None and known[1] is buffer and known[2] == buffer._version:
            return known
        return part, buffer, buffer._version, buffer.detach().clone()

    def restore(self):
        """Gives all buffers their noted values, and removes none that were added since."""
        with torch.no_grad():
            for (_, name), (part, buffer, version, copy) in self._noted.items():
                if buffer._version != version:
                    buffer.copy_(copy)
                part._buffers[name] = buffer
        self._noted = {}
