"""Sparse gradients in full: all values, zeros too, then a mark for each row that is there.

Each rank has rows of its own, and their number is not known before. So every element travels, and
the result has the rows that any rank has, also rows whose values come out as zeros (Y71)."""
import torch

from .cuda import crossing_of


def names_of_sparse(module):
    """Names of the parameters whose gradients are sparse, as DistributedDataParallel finds them."""
    kinds = torch.nn.Embedding, torch.nn.EmbeddingBag
    first = {}      # id of a parameter -> the module that has it first, which decides
    for one in module.modules():
        for parameter in one.parameters(recurse=False):
            first.setdefault(id(parameter), one)
    return {name for name, parameter in module.named_parameters()
            if isinstance(first[id(parameter)], kinds) and first[id(parameter)].sparse}


def elements_of(tensor):
    """How many elements a sparse gradient of such a tensor has in full."""
    return tensor.numel() + tensor.shape[0]


def full_of(tensor):
    """The flat tensor of a sparse one's values, and marks of its rows. One without elements may
    have any number of sparse dimensions: zero_grad() makes all of them sparse."""
    count = tensor.numel()
    flat = torch.zeros(elements_of(tensor), dtype=tensor.dtype, device=tensor.device)
    flat[:count].view(tensor.shape).add_(tensor.detach())
    flat[count:].index_fill_(0, tensor.detach()._indices()[0], 1)
    return flat


def sparse_of(flat, like, marks=None):
    """The sparse tensor of values and marks: whole rows; single elements if `like`, which is of its
    shape, has these."""
    count = like.numel()
    rows = (flat[count:] if marks is None else marks).nonzero().flatten()
    values = flat[:count].view(like.shape)
    if like._nnz() and like.sparse_dim() > 1:
        return values.to_sparse(like.sparse_dim())
    return torch.sparse_coo_tensor(rows.unsqueeze(0), values[rows], like.shape)._coalesced_(True)


class Full:
    """The means of a bucket of DistributedDataParallel that holds a sparse gradient, as
    _model.buckets.bucket_of() returns them."""

    def __init__(self, tensor):
        self._tensor = tensor

    def start(self, job, bucket):
        buffer = bucket.buffer()
        flat = full_of(buffer)
        crossing = crossing_of(job, flat)
        sent, landing = crossing.out(flat), crossing.back(flat)
        request = crossing.begin(lambda: job.push_pull(self._tensor, sent, landing))
        return request, lambda: crossing.land(lambda: sparse_of(flat, buffer))
