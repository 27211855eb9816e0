"""A lookup of rows as a torch module: forward pulls, backward pushes."""
import torch

from ..errors import mismatch
from .table import Table


class _Lookup(torch.autograd.Function):
    """`leaf` requires a gradient, so that backward is called; its own gradient stays undefined."""

    @staticmethod
    def forward(ctx, leaf, table, keys):
        ctx.table = table
        ctx.save_for_backward(keys)     # torch then refuses keys that were changed in place
        return table.pull(keys)

    @staticmethod
    def backward(ctx, gradients):
        keys, = ctx.saved_tensors
        ctx.table.push(keys, gradients.contiguous())
        return None, None, None


class Embedding(torch.nn.Module):
    """torch.nn.Embedding(sparse=True) whose weight is a Table, and whose optimizer is its rule.

    The module has no parameters and no state_dict(). forward(keys) returns the rows of a tensor of
    keys. backward() pushes their gradients; several passes in one clock add up. The rows are
    updated after job.clock(), by the settings of Table.set(). Under torch.no_grad() forward() only
    pulls."""

    def __init__(self, table):
        super().__init__()
        if not isinstance(table, Table):
            raise mismatch(f'Embedding of {table!r}, expected a Table; call job.table() first')
        self.table = table
        self._leaf = torch.empty(0, requires_grad=True)

    def forward(self, keys):
        if not isinstance(keys, torch.Tensor):
            raise mismatch(f"keys of table '{self.table.name}': a {type(keys).__name__}; Embedding "
                           'needs a torch tensor')
        return _Lookup.apply(self._leaf, self.table, keys)

    def requires_grad_(self, requires_grad=True):
        """After requires_grad_(False), backward() pushes no gradients, as with a frozen weight."""
        self._leaf.requires_grad_(requires_grad)
        return super().requires_grad_(requires_grad)

    def extra_repr(self):
        return f"'{self.table.name}', dim={self.table.dim}, rule='{self.table.rule}'"
