"""Search for good parameters: a study with many trials, each of which is a job. See EXPLORING.md.

    study = Study('digits', ['python3', 'train.py'], metric='loss', rule=ASHA(first=60))
    for parameters in grid(lr=[.3, .1, .03]): study.submit(parameters)
    study.run()"""
import importlib

from . import worker as _worker
from .rules import ASHA, Hyperband, Median, Never
from .search import grid, Random
from .worker import report

__all__ = ['ASHA', 'grid', 'Hyperband', 'Median', 'Never', 'parameters', 'Random', 'report',
           'Study']


def __getattr__(name):
    """Imports Study, and SQLite with it, at first use: a trial needs neither."""
    if name == 'Study':
        return importlib.import_module('.study', __name__).Study
    if name == 'parameters':
        return _worker.parameters()
    raise AttributeError(f"module 'gradpool.explore' has no attribute '{name}'")
