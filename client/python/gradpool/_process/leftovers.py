"""Frees the remaining steps of a failed backward() of torch while the interpreter still runs.

After a failure the engine keeps the remaining steps in a queue of the calling thread until the
thread's next backward(). The queue of the main thread is destroyed after the end of the
interpreter. A queued step refers to a parameter, and the parameter to its gradient. To free a
gradient in memory of the job (Y20), the interpreter's lock is needed. After the end of the
interpreter this lock no longer exists, so the process would hang."""
import atexit
import contextlib
import os

import torch

# The engine begins with the newest step. To run an older step, the engine drops all newer steps.
# _oldest is older than all steps of a script, so running _oldest drops all others.
_oldest = torch.zeros((), requires_grad=True) * 1
_process = os.getpid()


@atexit.register
def _drop():
    if os.getpid() == _process:     # some kinds of backward() fail in a forked child
        with contextlib.suppress(RuntimeError):
            _oldest.backward()
