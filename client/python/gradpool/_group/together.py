"""Operations on several tensors in one call. Tensors of the same dtype and device are sent as one
tensor. torch's functional collectives call these functions even for one tensor."""
import torch
from torch.distributed import ReduceOp

from .._tensors.carriers import carrier_of, check_alike, unload, widened
from ..errors import mismatch
from .arguments import arithmetic, only, puts, some
from .order import Shared


def _alike(tensors, key):
    """Returns lists of the numbers of tensors that have the same key."""
    found = {}
    for number, tensor in enumerate(tensors):
        found.setdefault(key(tensor), []).append(number)
    return found.values()


class Together:
    """Operations on several tensors, as a base class of ProcessGroup."""

    @puts
    def allreduce_coalesced(self, tensors, opts=None):
        first = some(tensors, 'all_reduce_coalesced')[0]
        name = arithmetic(opts.reduceOp if opts else ReduceOp.SUM, first)
        if other := next((one.dtype for one in tensors if one.dtype != first.dtype), None):
            raise mismatch(f'all_reduce_coalesced of {first.dtype} and {other}; give the tensors '
                           'of each dtype by themselves')
        given = torch.cat([carrier_of(tensor, False) for tensor in tensors])

        def finish():
            self._unload_all(given, tensors, False)
        return self._run('all_reduce_coalesced', given, [self._push(name, given, given)], tensors,
                         finish, kind=Shared)

    @puts
    def reduce_scatter_tensor_coalesced(self, outputs, inputs, opts):
        """Called by torch 2. Tensors may have different dtypes; each is reduced as in
        _reduce_scatter_base()."""
        if len(inputs) == 1:
            return self._reduce_scatter_base(only(outputs), inputs[0], opts)
        names = [arithmetic(opts.reduceOp, output) for output in outputs]
        fitting = widened if 'mean' in names else lambda carrier: carrier
        carriers = [fitting(self._carrier_to_scatter(*pair)).view(self.size(), -1)
                    for pair in zip(outputs, inputs, strict=True)]
        return self._run_together('reduce_scatter_tensor_coalesced', outputs, [
            self._reduced_together([carriers[i] for i in numbers], [outputs[i] for i in numbers],
                                   opts.reduceOp)
            for numbers in _alike(carriers, lambda carrier: carrier.dtype)])

    def _reduced_together(self, carriers, outputs, operation):
        """Like _reduced(), for an operation with several outputs."""
        given = torch.cat(carriers, 1)
        found = given.new_empty(given.shape[1])
        part, land = self._reduced(found, given.view(-1), operation)

        def finish():
            land()
            self._unload_all(found, outputs, False)
        return part, finish

    @puts
    def allgather_into_tensor_coalesced(self, outputs, tensors, opts=None):
        """Called by torch 2. Tensors may have different dtypes; each is gathered as in
        _allgather_base()."""
        if len(tensors) == 1:
            return self._allgather_base(only(outputs), tensors[0])
        for output, tensor in zip(outputs, tensors, strict=True):
            self._check_gathered(output, tensor)
        of_ranks = zip(*(output.view(self.size(), -1).unbind() for output in outputs))
        return self._gather_together(outputs, list(of_ranks), tensors)

    @puts
    def allgather_coalesced(self, outputs, tensors, opts=None):
        self._check_count('all_gather_coalesced', outputs)
        for of_rank in outputs:
            if len(of_rank) != len(some(tensors, 'all_gather_coalesced')):
                raise mismatch(f'all_gather_coalesced: {len(of_rank)} tensors of a rank for '
                               f'{len(tensors)}')
            for output, tensor in zip(of_rank, tensors):
                check_alike([output], tensor, 'all_gather_coalesced')
        return self._gather_together([one for of_rank in outputs for one in of_rank], outputs,
                                     tensors)

    def _gather_together(self, results, outputs, tensors):
        return self._run_together('all_gather_coalesced', results, [
            self._collected_together(numbers, [carrier_of(tensors[i], True) for i in numbers],
                                     outputs)
            for numbers in _alike(tensors, lambda tensor: carrier_of(tensor, True).dtype)])

    def _collected_together(self, numbers, carriers, outputs):
        """Returns one part for the tensors with these numbers and carriers."""
        given = torch.cat(carriers)
        whole = self._room_for_all(given)

        def finish():
            for block, of_rank in zip(self._blocks(whole), outputs):
                self._unload_all(block, [of_rank[i] for i in numbers], True)
        return self._push('gather', given, whole), finish

    def _run_together(self, what, results, pairs):
        """Returns one collective made of several pairs (part, function that finishes it)."""
        parts = [part for part, _ in pairs]

        def finish_all():
            for _, finish in pairs:
                finish()
        return self._run(what, some(results, what)[0], parts, results, finish_all, what, Shared)

    def _unload_all(self, carrier, tensors, is_moved):
        sizes = [carrier_of(tensor, is_moved).numel() for tensor in tensors]
        for block, tensor in zip(carrier.split(sizes), tensors):
            unload(block, tensor, is_moved)
