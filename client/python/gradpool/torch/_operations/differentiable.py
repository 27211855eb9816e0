"""Operations with gradients. The gradient of each operation follows Horovod's rule:

allreduce      the same operation, with the same factors
allgather      the mean over the ranks; each rank gets its own rows
broadcast      the mean over the ranks for the root, zeros for the others
reducescatter  the gathered gradients; times the number of ranks for a Sum; times both factors
alltoall       the rows of the gradient return to their ranks"""
import torch

from ..._tensors.carriers import check_tensor, scaled
from ..compression import Compression
from ..process_sets import global_process_set
from . import collectives
from .calls import checked_splits, Gathering, ReduceOp
from .handles import begin


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, how, name, *tensors):
        ctx.how = how
        return tuple(collectives.grouped_allreduce_async(tensors, None, name, *how).wait())

    @staticmethod
    def backward(ctx, *gradients):
        reduced = collectives.grouped_allreduce_async(gradients, None, None, *ctx.how).wait()
        return None, None, *reduced


class _Allgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, process_set, *tensors):
        ranks = process_set.sequences()
        call = Gathering(ranks, tensors)
        found = begin(ranks, call, name, call.whole).wait()
        counts = [[len(rows) for rows in of_rank] for of_rank in call.found]
        before = [sum(of_one) for of_one in zip(*counts[:ranks.position])] or [0] * len(tensors)
        ctx.process_set, ctx.mine = process_set, list(zip(before, counts[ranks.position]))
        return tuple(found)

    @staticmethod
    def backward(ctx, *gradients):
        means = collectives.grouped_allreduce_async(gradients, process_set=ctx.process_set).wait()
        return None, None, *[mean.narrow(0, *mine) for mean, mine in zip(means, ctx.mine)]


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, root, name, process_set):
        ctx.root, ctx.process_set = root, process_set
        return collectives.broadcast_async(tensor, root, name, process_set).wait()

    @staticmethod
    def backward(ctx, gradient):
        ranks = ctx.process_set.sequences()
        mean = collectives.allreduce_async(gradient, process_set=ctx.process_set).wait()
        return mean if ranks.job.rank == ctx.root else torch.zeros_like(mean), None, None, None


class _Reducescatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, how, name, *tensors):
        op, ctx.process_set, before, after = how
        ctx.factor = before * after * (ctx.process_set.size() if op is ReduceOp.Sum else 1)
        return tuple(collectives.grouped_reducescatter_async(tensors, name, *how).wait())

    @staticmethod
    def backward(ctx, *gradients):
        every = collectives.grouped_allgather_async(gradients, None, ctx.process_set).wait()
        return None, None, *[scaled(one, ctx.factor) for one in every]


class _Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, splits, name, process_set):
        splits = checked_splits(process_set.sequences(), tensor, splits)
        rows, received = collectives.alltoall_async(tensor, splits, name, process_set).wait()
        ctx.received, ctx.process_set = received, process_set
        ctx.mark_non_differentiable(received)
        return rows, received

    @staticmethod
    def backward(ctx, gradient, _):
        back, _ = collectives.alltoall_async(gradient, ctx.received,
                                              process_set=ctx.process_set).wait()
        return back, None, None, None


def allreduce(tensor, average=None, name=None, compression=Compression.none, op=None,
              prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set):
    """Returns the mean of all ranks' tensors, or the reduction `op`; also of sparse tensors. Ranks
    match calls by `name`, and calls without a name by their order.

      average      True: Average, False: Sum; replaces the argument `op`
      compression  conversion of the values for sending
      prescale_factor, postscale_factor   factors of the values before and after the reduction"""
    check_tensor(tensor)
    if tensor.is_sparse:
        return collectives.sparse_allreduce_async(
            tensor, name, collectives.operation_of(op, average), process_set, prescale_factor,
            postscale_factor, compression).wait()
    return grouped_allreduce([tensor], average, name, compression, op, prescale_factor,
                             postscale_factor, process_set)[0]


def grouped_allreduce(tensors, average=None, name=None, compression=Compression.none, op=None,
                      prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set):
    """Does allreduce() of several tensors as one operation. Returns them in the same order."""
    op = collectives.operation_of(op, average)
    travel, known = zip(*map(compression.compress, collectives.some(tensors, 'allreduce')))
    found = _Allreduce.apply((op, prescale_factor, postscale_factor, process_set), name, *travel)
    return [compression.decompress(tensor, of) for tensor, of in zip(found, known)]


def allgather(tensor, name=None, process_set=global_process_set):
    """Returns the rows of all ranks, in rank order. Ranks may have different numbers of rows."""
    return _Allgather.apply(name, process_set, tensor)[0]


def grouped_allgather(tensors, name=None, process_set=global_process_set):
    """Does allgather() of several tensors as one operation. Returns a list in the same order."""
    return list(_Allgather.apply(name, process_set, *collectives.some(tensors, 'allgather')))


def broadcast(tensor, root_rank, name=None, process_set=global_process_set):
    """Returns the root's values in a new tensor. `root_rank`: number in the job, not in the set."""
    return _Broadcast.apply(tensor, root_rank, name, process_set)


def reducescatter(tensor, name=None, compression=Compression.none, op=ReduceOp.Average,
                  process_set=global_process_set, prescale_factor=1.0, postscale_factor=1.0):
    """Returns this rank's rows of the mean of all ranks' tensors, or of the reduction `op`. The
    first ranks get one row more if the rows do not divide evenly."""
    return grouped_reducescatter([tensor], name, compression, op, process_set, prescale_factor,
                                 postscale_factor)[0]


def grouped_reducescatter(tensors, name=None, compression=Compression.none, op=ReduceOp.Average,
                          process_set=global_process_set, prescale_factor=1.0,
                          postscale_factor=1.0):
    """Does reducescatter() of several tensors as one operation. Returns a list in the same
    order."""
    travel, known = zip(*map(compression.compress, collectives.some(tensors, 'reducescatter')))
    how = op, process_set, prescale_factor, postscale_factor
    found = _Reducescatter.apply(how, name, *travel)
    return [compression.decompress(tensor, of) for tensor, of in zip(found, known)]


def alltoall(tensor, splits=None, name=None, process_set=global_process_set):
    """Sends rows from each rank to each rank. With `splits`, the number of this rank's rows for
    each rank, the result is (rows, number of rows from each rank). With None each rank gets equally
    many rows, and the result is the rows alone."""
    check_tensor(tensor)
    rows, received = _Alltoall.apply(tensor, splits, name, process_set)
    return rows if splits is None else (rows, received)


def push_pull(tensor, average=True, name=None, version=0, priority=0,
              compression=Compression.none):
    """Same as allreduce(), with BytePS's arguments; version and priority are ignored."""
    return allreduce(tensor, average, name, compression)
