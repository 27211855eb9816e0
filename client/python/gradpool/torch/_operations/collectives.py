"""The operations for scripts, with Horovod's and BytePS's names and arguments."""
import torch

from ..._tensors.carriers import check_place, check_tensor
from ...errors import mismatch
from ..compression import Compression
from ..process_sets import global_process_set
from .calls import Broadcast, Exchange, Gathering, ReduceOp, Reduction, Scattering
from .handles import begin
from .packs import GroupedReduction
from .sparse import SparseReduction


def operation_of(op, average):
    if average is not None and op is not None:
        raise mismatch('both op and average are given: give op alone')
    if op is None:
        return ReduceOp.Sum if average is not None and not average else ReduceOp.Average
    return op


def _like(tensor):
    check_tensor(tensor)
    return torch.empty_like(tensor, memory_format=torch.contiguous_format, requires_grad=False)


def _reduce(tensors, outputs, average, name, op, factors, process_set, result):
    for output in outputs:
        check_place(output)
    ranks = process_set.sequences()
    kind = Reduction if len(tensors) == 1 else GroupedReduction
    call = kind(ranks, tensors, outputs, operation_of(op, average), tuple(map(float, factors)))
    return begin(ranks, call, name, result)


def allreduce_async(tensor, average=None, name=None, op=None, prescale_factor=1.0,
                    postscale_factor=1.0, process_set=global_process_set):
    """Starts allreduce() and returns a handle."""
    output = _like(tensor)
    return _reduce([tensor], [output], average, name, op, (prescale_factor, postscale_factor),
                   process_set, lambda: output)


def allreduce_async_(tensor, average=None, name=None, op=None, prescale_factor=1.0,
                     postscale_factor=1.0, process_set=global_process_set):
    """Starts allreduce_() and returns a handle."""
    return _reduce([tensor], [tensor], average, name, op, (prescale_factor, postscale_factor),
                   process_set, lambda: tensor)


def allreduce_(tensor, average=None, name=None, op=None, prescale_factor=1.0,
               postscale_factor=1.0, process_set=global_process_set):
    """Does allreduce() in place and returns the tensor."""
    return allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor,
                            process_set).wait()


def grouped_allreduce_async(tensors, average=None, name=None, op=None, prescale_factor=1.0,
                            postscale_factor=1.0, process_set=global_process_set):
    """Starts grouped_allreduce() and returns a handle."""
    tensors = some(tensors, 'allreduce')
    outputs = [_like(tensor) for tensor in tensors]
    return _reduce(tensors, outputs, average, name, op, (prescale_factor, postscale_factor),
                   process_set, lambda: outputs)


def grouped_allreduce_async_(tensors, average=None, name=None, op=None, prescale_factor=1.0,
                             postscale_factor=1.0, process_set=global_process_set):
    """Starts grouped_allreduce_() and returns a handle."""
    tensors = some(tensors, 'allreduce')
    return _reduce(tensors, tensors, average, name, op, (prescale_factor, postscale_factor),
                   process_set, lambda: tensors)


def grouped_allreduce_(tensors, average=None, name=None, op=None, prescale_factor=1.0,
                       postscale_factor=1.0, process_set=global_process_set):
    """Does grouped_allreduce() in place and returns the tensors."""
    return grouped_allreduce_async_(tensors, average, name, op, prescale_factor, postscale_factor,
                                    process_set).wait()


def some(tensors, kind):
    tensors = list(tensors)
    if not tensors:
        raise mismatch(f'grouped_{kind} of no tensors')
    for tensor in tensors:
        check_tensor(tensor)
    return tensors


def sparse_allreduce_async(tensor, name=None, op=None, process_set=global_process_set,
                           prescale_factor=1.0, postscale_factor=1.0,
                           compression=Compression.none):
    """Sums or averages sparse tensors: gathers their indices and values. Returns a handle."""
    check_tensor(tensor)
    if not tensor.is_sparse:
        raise mismatch(f'sparse_allreduce of a tensor of layout {tensor.layout}; call allreduce()')
    ranks, tensor = process_set.sequences(), tensor.detach().coalesce()
    travel, known = compression.compress(tensor.values())
    indices = tensor.indices().t().clone(memory_format=torch.contiguous_format)
    call = SparseReduction(ranks, indices, travel, tensor.shape, operation_of(op, None),
                           (float(prescale_factor), float(postscale_factor)))
    return begin(ranks, call, name, lambda: call.reduced(
        lambda values: compression.decompress(values, known)))


def allgather_async(tensor, name=None, process_set=global_process_set):
    """Starts allgather() and returns a handle."""
    ranks = process_set.sequences()
    call = Gathering(ranks, [tensor])
    return begin(ranks, call, name, lambda: call.whole()[0])


def grouped_allgather_async(tensors, name=None, process_set=global_process_set):
    """Starts grouped_allgather() and returns a handle."""
    ranks = process_set.sequences()
    call = Gathering(ranks, some(tensors, 'allgather'))
    return begin(ranks, call, name, call.whole)


def broadcast_async(tensor, root_rank, name=None, process_set=global_process_set):
    """Starts broadcast() and returns a handle."""
    check_tensor(tensor)
    return broadcast_async_(tensor.detach().clone(memory_format=torch.contiguous_format), root_rank,
                            name, process_set)


def broadcast_async_(tensor, root_rank, name=None, process_set=global_process_set):
    """Starts broadcast_() and returns a handle."""
    ranks = process_set.sequences()
    return begin(ranks, Broadcast(ranks, tensor, root_rank), name, lambda: tensor)


def broadcast_(tensor, root_rank, name=None, process_set=global_process_set):
    """Copies the root's values into the tensor and returns it."""
    return broadcast_async_(tensor, root_rank, name, process_set).wait()


def reducescatter_async(tensor, name=None, op=ReduceOp.Average, process_set=global_process_set,
                        prescale_factor=1.0, postscale_factor=1.0):
    """Starts reducescatter() and returns a handle."""
    return _scatter([tensor], name, op, process_set, (prescale_factor, postscale_factor),
                    lambda outputs: outputs[0])


def grouped_reducescatter_async(tensors, name=None, op=ReduceOp.Average,
                                process_set=global_process_set, prescale_factor=1.0,
                                postscale_factor=1.0):
    """Starts grouped_reducescatter() and returns a handle."""
    return _scatter(some(tensors, 'reducescatter'), name, op, process_set,
                    (prescale_factor, postscale_factor), lambda outputs: outputs)


def _scatter(tensors, name, op, process_set, factors, result):
    ranks = process_set.sequences()
    call = Scattering(ranks, tensors, op, tuple(map(float, factors)))
    return begin(ranks, call, name, lambda: result(call.outputs))


def alltoall_async(tensor, splits=None, name=None, process_set=global_process_set):
    """Starts alltoall(). Returns a handle of (rows, number of rows from each rank). Without splits
    the result of the handle is the rows alone."""
    ranks = process_set.sequences()
    call = Exchange(ranks, tensor, splits)

    def result():
        rows, received = call.rows()
        return rows if splits is None else (rows, torch.tensor(received, dtype=torch.int32))
    return begin(ranks, call, name, result)


def barrier(process_set=global_process_set):
    """Returns when all ranks have called barrier()."""
    nothing = torch.empty(0, dtype=torch.int32)
    call = Reduction(process_set.sequences(), [nothing], [nothing], ReduceOp.Sum, (1.0, 1.0))
    call.kind = 'barrier'
    begin(process_set.sequences(), call, None, lambda: None).wait()


# ---- BytePS's names ----

def push_pull_async(tensor, average=True, name=None, version=0, priority=0):
    """Same as allreduce_async(); version and priority are ignored."""
    return allreduce_async(tensor, average, name)


def push_pull_async_(tensor, average=True, name=None, version=0, priority=0):
    """Same as allreduce_async_()."""
    return allreduce_async_(tensor, average, name)


def push_pull_(tensor, average=True, name=None, version=0, priority=0):
    """Same as allreduce_()."""
    return allreduce_(tensor, average, name)


push_pull_inplace, push_pull_async_inplace = push_pull_, push_pull_async_


def declare(name):
    """BytePS's scripts call this function in the order of the model, to number its tensors.
    gradpool only stores the name: the first operation of a name describes its tensor."""
    global_process_set.sequences().of(str(name))
