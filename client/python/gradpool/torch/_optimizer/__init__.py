"""DistributedOptimizer: gradients that are being sent, and state that ranks share."""
from .optimizer import _copy_of     # noqa: pickles of older scripts name it here
