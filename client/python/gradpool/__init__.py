"""gradpool: sends gradients to a gradpool service and returns their mean. See README.md.

    gradpool.ddp.attach(model)     # one line in a DistributedDataParallel script
    import gradpool.torch as hvd   # one line in a script for Horovod
    gradpool.elastic.Run(...)      # the loop of a training whose workers join and leave
    gradpool.explore.Study(...)    # a search with many trials, each of which is a job
    gradpool.connect()             # without PyTorch: Client, Job, Tensor, Request
"""
import importlib

from ._native.backup import Backup
from ._native.binding import lib as _lib
from .client import Client, connect, Job, job_from_environment, Request, Tensor
from .errors import Forked, GradpoolError, Mismatch, PeerLost, Timeout, Unreachable

__version__ = _lib.gp_version().decode()
__all__ = ['Backup', 'Client', 'codecs', 'connect', 'ddp', 'elastic', 'explore',
           'Forked', 'GradpoolError',
           'Job', 'job_from_environment', 'Mismatch', 'PeerLost', 'Request', 'tables', 'Tensor',
           'Timeout', 'Unreachable']


def __getattr__(name):
    """Imports modules at first use. gradpool.ddp, .elastic and .torch import torch, which needs
    seconds and much memory. gradpool.codecs and .tables import numpy."""
    if name in ('codecs', 'ddp', 'elastic', 'explore', 'tables', 'torch'):
        return importlib.import_module(f'.{name}', __name__)
    raise AttributeError(f"module 'gradpool' has no attribute '{name}'")
