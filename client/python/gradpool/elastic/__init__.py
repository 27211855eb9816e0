"""Training whose workers join and leave: Run, a loop over the steps of a deal. See ELASTIC.md."""
from .run import Run

__all__ = ['Run']
