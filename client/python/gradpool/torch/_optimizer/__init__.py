"""DistributedOptimizer: its gradients, and the transfer of state among ranks."""
from .optimizer import _copy_of     # noqa: pickles of older scripts contain this name
