"""Sparse gradients that are sent in dense form: all values including zeros, then one mark for each
row. A mark shows that its row exists.

Each rank has different rows, and their number is not known in advance. So every element is sent.
The result has each row that exists on any rank, even if its values are zero (Y71)."""
import torch

from .cuda import crossing_of


def names_of_sparse(module):
    """Returns the names of the parameters whose gradients are sparse, by the rule of
    DistributedDataParallel."""
    kinds = torch.nn.Embedding, torch.nn.EmbeddingBag
    first = {}      # id of a parameter -> the first module that has the parameter
    for one in module.modules():
        for parameter in one.parameters(recurse=False):
            first.setdefault(id(parameter), one)
    return {name for name, parameter in module.named_parameters()
            if isinstance(first[id(parameter)], kinds) and first[id(parameter)].sparse}


def elements_of(tensor):
    """Returns the number of elements that a sparse gradient of this tensor has in dense form."""
    return tensor.numel() + tensor.shape[0]


def full_of(tensor):
    """Returns a flat tensor of a sparse tensor's values and marks. A tensor without elements may
    have any number of sparse dimensions, because zero_grad() makes all of them sparse."""
    count = tensor.numel()
    flat = torch.zeros(elements_of(tensor), dtype=tensor.dtype, device=tensor.device)
    flat[:count].view(tensor.shape).add_(tensor.detach())
    flat[count:].index_fill_(0, tensor.detach()._indices()[0], 1)
    return flat


def sparse_of(flat, like, marks=None):
    """Returns the sparse tensor for values and marks. The result has whole rows, or single elements
    if `like` has single elements. `like` has the shape of the result."""
    count = like.numel()
    rows = (flat[count:] if marks is None else marks).nonzero().flatten()
    values = flat[:count].view(like.shape)
    if like._nnz() and like.sparse_dim() > 1:
        return values.to_sparse(like.sparse_dim())
    return torch.sparse_coo_tensor(rows.unsqueeze(0), values[rows], like.shape)._coalesced_(True)


class Full:
    """The means of a bucket of DistributedDataParallel with a sparse gradient, with the interface
    of _model.buckets.bucket_of()."""

    def __init__(self, tensor):
        self._tensor = tensor

    def start(self, job, bucket):
        buffer = bucket.buffer()
        flat = full_of(buffer)
        crossing = crossing_of(job, flat)
        sent, landing = crossing.out(flat), crossing.back(flat)
        request = crossing.begin(lambda: job.push_pull(self._tensor, sent, landing))
        return request, lambda: crossing.land(lambda: sparse_of(flat, buffer))
