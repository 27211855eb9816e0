"""Frees the rest of a failed backward() in torch while the interpreter still runs.

The engine keeps steps that it has not done in a queue of the calling thread, until that thread's
next backward(). The main thread's queue is destroyed by C's exit(), when Python has ended. A step
holds parameters, and a parameter holds its gradient. If the gradient lies in memory of the job
(Y20), giving back that memory needs the interpreter's lock, which cannot be had any more: the
process would hang."""
import atexit
import contextlib
import os

import torch

# The engine works on the latest step first: to reach a step that was made here it drops all others.
# So this step is made before a script can make one.
_oldest = torch.zeros((), requires_grad=True) * 1
_process = os.getpid()


@atexit.register
def _drop():
    if os.getpid() == _process:     # torch refuses some kinds of backward() in a child
        with contextlib.suppress(RuntimeError):
            _oldest.backward()
