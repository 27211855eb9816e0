"""The third door (interface): Horovod's and BytePS's calls, done by the service.

    import gradpool.torch as hvd        # was: import horovod.torch as hvd
    hvd.init()
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

Ranks match operations by name, in any order. Calls without a name are matched by their order among
calls of the same kind. A second call with the name of an open operation raises an error at once. If
ranks disagree, every rank raises a Mismatch. No operation waits longer than GRADPOOL_TIMEOUT_MS."""
import importlib

from ..errors import Forked, GradpoolError, Mismatch, PeerLost, Timeout, Unreachable
from ._batch_norm import SyncBatchNorm
from ._door import (add_process_set, ccl_built, check_extension, cross_rank, cross_size,
                    cuda_built, ddl_built, gloo_built, gloo_enabled, init, is_homogeneous,
                    is_initialized, local_rank, local_size, mpi_built, mpi_enabled,
                    mpi_threads_supported, nccl_built, rank, remove_process_set, rocm_built,
                    shutdown, size, start_timeline, stop_timeline)
from ._operations.calls import ReduceOp
from ._operations.collectives import (allgather_async, allreduce_, allreduce_async,
                                      allreduce_async_, alltoall_async, barrier, broadcast_,
                                      broadcast_async, broadcast_async_, declare,
                                      grouped_allgather_async, grouped_allreduce_,
                                      grouped_allreduce_async, grouped_allreduce_async_,
                                      grouped_reducescatter_async, push_pull_, push_pull_async,
                                      push_pull_async_, push_pull_async_inplace, push_pull_inplace,
                                      reducescatter_async, sparse_allreduce_async)
from ._operations.differentiable import (allgather, allreduce, alltoall, broadcast,
                                         grouped_allgather, grouped_allreduce,
                                         grouped_reducescatter, push_pull, reducescatter)
from ._operations.handles import poll, synchronize
from ._operations.joining import join
from ._operations.objects import allgather_object, broadcast_object
from ._optimizer.optimizer import DistributedOptimizer
from ._optimizer.state_transfer import broadcast_optimizer_state, broadcast_parameters
from .compression import Compression
from .process_sets import global_process_set, ProcessSet

HorovodInternalError = GradpoolError
Average, Sum, Min, Max = ReduceOp.Average, ReduceOp.Sum, ReduceOp.Min, ReduceOp.Max
Product, Adasum = ReduceOp.Product, ReduceOp.Adasum

__all__ = ['Adasum', 'add_process_set', 'allgather', 'allgather_async', 'allgather_object',
           'allreduce', 'allreduce_', 'allreduce_async', 'allreduce_async_', 'alltoall',
           'alltoall_async', 'Average', 'barrier', 'broadcast', 'broadcast_', 'broadcast_async',
           'broadcast_async_', 'broadcast_object', 'broadcast_optimizer_state',
           'broadcast_parameters', 'ccl_built', 'check_extension', 'Compression', 'cross_rank',
           'cross_size', 'cuda_built', 'ddl_built', 'declare', 'DistributedOptimizer', 'Forked',
           'global_process_set', 'gloo_built', 'gloo_enabled', 'GradpoolError', 'grouped_allgather',
           'grouped_allgather_async', 'grouped_allreduce', 'grouped_allreduce_',
           'grouped_allreduce_async', 'grouped_allreduce_async_', 'grouped_reducescatter',
           'grouped_reducescatter_async', 'HorovodInternalError', 'init', 'is_homogeneous',
           'is_initialized', 'join', 'local_rank', 'local_size', 'Max', 'Min', 'Mismatch',
           'mpi_built', 'mpi_enabled', 'mpi_threads_supported', 'nccl_built', 'PeerLost', 'poll',
           'ProcessSet', 'Product', 'push_pull', 'push_pull_', 'push_pull_async',
           'push_pull_async_', 'push_pull_async_inplace', 'push_pull_inplace', 'rank', 'ReduceOp',
           'reducescatter', 'reducescatter_async', 'remove_process_set', 'rocm_built', 'shutdown',
           'size', 'sparse_allreduce_async', 'start_timeline', 'stop_timeline', 'Sum',
           'SyncBatchNorm', 'synchronize', 'Timeout', 'Unreachable']


def __getattr__(name):
    """Imports the package `elastic` at first use, as Horovod's scripts say hvd.elastic.run."""
    if name == 'elastic':
        return importlib.import_module('.elastic', __name__)
    raise AttributeError(f"module 'gradpool.torch' has no attribute '{name}'")
