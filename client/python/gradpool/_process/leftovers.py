"""Leftovers of a failed backward() in torch, let go of while there is an interpreter.

The engine keeps steps that it has not come to, in a queue of the thread that called, until that
thread's next backward(). The main thread's queue is destroyed by C's exit(), when Python has ended:
a step holds parameters, a parameter its gradient, and memory of the job that this lies in (Y20) is
given back by asking for the interpreter's lock, which is never to be had again."""
import atexit
import contextlib
import os

import torch

# Latest first is the engine's order: to get to a step of this one it drops all others. So it is
# made before a script can make any.
_oldest = torch.zeros((), requires_grad=True) * 1
_process = os.getpid()


@atexit.register
def _drop():
    if os.getpid() == _process:     # torch refuses a child some kinds of backward()
        with contextlib.suppress(RuntimeError):
            _oldest.backward()
