"""The second door (interface): a backend of torch.distributed.

    import gradpool.distributed
    torch.distributed.init_process_group('gradpool')

The ranks of the default group are the workers of a job. The tensors of a sub-group are declared for
its ranks. Each operation is a push of a declared tensor (_group.operations.Names), and the service
does the operation. Exceptions: for a bitwise reduction this module gathers all values and reduces
them. Transfers from one rank to another (send, scatter, all_to_all with splits) use tensors of
these two ranks.

This module has torch's ProcessGroup. torch's store, through which the ranks agree on the name of
the job, belongs to torch (Y111)."""
import inspect

import torch
import torch.distributed
from torch.distributed import ReduceOp

from ._group import monitored, unattended
from ._group.any_source import Claim, Mailbox
from ._group.arguments import arithmetic, fold_of, only, puts
from ._group.operations import Names, Operation, Part
from ._group.order import Barrier, Collective, Order
from ._group.said import Said
from ._group.together import Together
from ._model import uneven
from ._process import interrupts, rendezvous
from ._process.job_name import job_name
from ._process.membership import join
from ._tensors.carriers import carrier_of, check_alike, is_its_own, unload, widened
from ._tensors.cuda import crossing_of, room_for
from ._tensors.full import full_of, sparse_of
from ._tensors.lengths import Pieces, Push
from .errors import GradpoolError, mismatch

# Maximum number of tensors that two ranks keep declared for one direction and tag.
_CHANNEL_NAMES_MAX = 8


class ProcessGroup(Together, torch.distributed.ProcessGroup):
    """A group of ranks of a job; made by torch.distributed. wait() raises the errors of
    gradpool.errors. After the first error every later operation raises this error (Y9).

    ranks  ranks of the group, as numbered in the job"""

    # setting of the time-out, for error texts
    raised_by = 'init_process_group(timeout=) or new_group(timeout=)'

    def __init__(self, membership, name, ranks, rank, timeout):
        super().__init__(rank, len(ranks))
        self._membership, self._job = membership, membership.job
        self._name, self._ranks = name, ranks
        self._prefix = f'torch.distributed/{name}'
        self._names = Names(self._job, self._prefix, ranks)
        self._said = Said(self._job, name, self._prefix, ranks)
        self.order = Order(self._job, name, self._prefix, ranks)
        self._channels = {}     # key (*kind, source, target) -> Names of the transfers
        self._mailboxes = {}    # key (tag, dtype, elements) -> Mailbox of the messages
        self.timeout_s = timeout.total_seconds()
        self.failure = None
        self.open = set()       # operations in progress
        unattended.watch(self)

    def __del__(self):
        for names in [self._names, *self._channels.values()]:
            names.end()
        self._said.end()
        self.order.end()
        self._membership.release()

    def getBackendName(self):
        return 'gradpool'

    @property
    def group_name(self):
        """The name by which torch 2 finds the group."""
        return self._name

    def fail(self, error):
        """Fails the group. After a failed operation, this rank's later operations cannot be matched
        with the operations of other ranks."""
        if self.failure is None:
            self.failure = error
        for operation in list(self.open):
            operation.end(self.failure)

    # ---- reductions ----

    @puts
    def allreduce(self, tensors, opts=None):
        operation = opts.reduceOp if opts else ReduceOp.SUM
        return self._reduce('all_reduce', only(tensors), operation, True)

    @puts
    def reduce(self, tensors, opts):
        return self._reduce('reduce', only(tensors), opts.reduceOp,
                            self.rank() == opts.rootRank)

    def _reduce(self, what, tensor, operation, is_wanted):
        if tensor.is_sparse:
            return self._reduce_sparse(what, tensor, operation, is_wanted)
        fold = fold_of(operation)
        if fold is not None:
            return self._fold(what, tensor, fold, is_wanted)
        name = arithmetic(operation, tensor)
        given = carrier_of(tensor, False)
        result = given if is_wanted else torch.empty(given.shape, dtype=given.dtype)
        return self._run(what, tensor, [self._push(name, given, result)], [tensor],
                         lambda: is_wanted and unload(given, tensor, False))

    def _reduce_sparse(self, what, tensor, operation, is_wanted):
        """Sends the whole tensor, because the rows of other ranks are unknown."""
        name = arithmetic(operation, tensor)
        if name not in ('sum', 'mean'):
            raise mismatch(f'sparse tensors have no {name}: a missing element counts as 0 '
                           'only in a sum or a mean')
        full = full_of(tensor)
        given = carrier_of(full, False)

        def finish():
            if is_wanted:
                unload(given, full, False)
                # marks count ranks, which could overflow short integers
                marks = None if full.is_complex() else given[tensor.numel():]
                with torch.no_grad():   # a tensor of detach() has a separate version
                    tensor.copy_(sparse_of(full, tensor, marks))
        return self._run(what, tensor, [self._push(name, given, given)], [tensor], finish)

    def _fold(self, what, tensor, fold, is_wanted):
        if tensor.is_floating_point() or tensor.is_complex():
            raise mismatch(f'{tensor.dtype} has no bitwise reduction')
        given = carrier_of(tensor, True)
        whole = self._room_for_all(given) if is_wanted else None

        def finish():
            if is_wanted:
                first, *others = self._blocks(whole)
                for other in others:
                    fold(first, other, out=first)
                unload(first, tensor, True)
        return self._run(what, tensor, [self._push('gather', given, whole)], [tensor], finish)

    @puts
    def reduce_scatter(self, outputs, inputs, opts):
        output, inputs = only(outputs), only(inputs)
        self._check_count('reduce_scatter', inputs)
        check_alike(inputs, output, 'reduce_scatter')
        given = torch.cat([carrier_of(tensor, False) for tensor in inputs])
        return self._reduce_scatter(output, given, opts.reduceOp)

    @puts
    def _reduce_scatter_base(self, output, given, opts=None):
        return self._reduce_scatter(output, self._carrier_to_scatter(output, given),
                                    opts.reduceOp if opts else ReduceOp.SUM)

    def _carrier_to_scatter(self, output, given):
        if given.numel() != self.size() * output.numel() or given.dtype != output.dtype:
            raise mismatch(f'reduce_scatter: {given.numel()} {given.dtype} in, {output.numel()} '
                           f'{output.dtype} out, in a group of {self.size()}; the input must have '
                           'the output\'s dtype, and its elements times the size of the group')
        return carrier_of(given, False)

    def _reduce_scatter(self, output, given, operation):
        part, finish = self._reduced(output, given, operation)
        return self._run('reduce_scatter', output, [part], [output], finish)

    def _reduced(self, output, given, operation):
        """Returns the part of a reduce-scatter, and the function that copies this rank's block to
        the output. The carrier has one block for each rank."""
        name = arithmetic(operation, output)
        result = carrier_of(output, False)
        if name == 'mean':
            given = widened(given)
        if name in ('sum', 'mean'):
            found = result.to(given.dtype)
            part = self._push('reduce-scatter', given, found, found.numel())
        else:
            whole = torch.empty_like(given)
            found = self._blocks(whole)[self.rank()]
            part = self._push(name, given, whole)

        def finish():
            if name == 'mean':
                found.div_(self.size())
            unload(result.copy_(found), output, False)
        return part, finish

    # ---- one to all, all to one, all to all ----

    @puts
    def broadcast(self, tensors, opts):
        tensor = only(tensors)
        values, root = carrier_of(tensor, True), self._ranks[opts.rootRank]
        places = (values, None) if self._job.rank == root else (None, values)

        def begin(of, given, result):
            return self._job.broadcast(of, result if given is None else given, root)
        part = self._cut(begin, *places)
        return self._run('broadcast', tensor, [part], [tensor],
                         lambda: unload(values, tensor, True))

    @puts
    def allgather(self, outputs, tensors, opts=None):
        return self._collect('all_gather', only(tensors), only(outputs))

    @puts
    def gather(self, outputs, tensors, opts):
        is_root = self.rank() == opts.rootRank
        return self._collect('gather', only(tensors), only(outputs) if is_root else None)

    def _collect(self, what, tensor, outputs):
        given = carrier_of(tensor, True)
        whole = None if outputs is None else self._room_for_all(given)
        if outputs is not None:
            self._check_count(what, outputs)
            check_alike(outputs, tensor, what)

        def finish():
            for block, output in zip(self._blocks(whole), outputs) if outputs else ():
                unload(block, output, True)
        return self._run(what, tensor, [self._push('gather', given, whole)], outputs or (), finish)

    @puts
    def _allgather_base(self, output, tensor, opts=None):
        self._check_gathered(output, tensor)
        whole = carrier_of(output, True)
        if not is_its_own(output, whole):
            return self._collect('all_gather', tensor, output.view(self.size(), -1).unbind())
        part = self._push('gather', carrier_of(tensor, True), whole)
        return self._run('all_gather', tensor, [part], [output])

    def _check_gathered(self, output, tensor):
        if (output.numel(), output.dtype) != (self.size() * tensor.numel(), tensor.dtype) \
                or not output.is_contiguous():
            raise mismatch(f'all_gather: {tensor.numel()} {tensor.dtype} in, {output.numel()} '
                           f'{output.dtype} out, in a group of {self.size()}; the output must be '
                           'contiguous')

    @puts
    def scatter(self, outputs, inputs, opts):
        output, root = only(outputs), opts.rootRank
        outs, ins = [output.new_empty(0)] * self.size(), [output.new_empty(0)] * self.size()
        if self.rank() == root:
            ins = only(inputs)
            self._check_count('scatter', ins)
            check_alike(ins, output, 'scatter')
        outs[root] = output
        return self._exchange('scatter', output, outs, ins)

    @puts
    def alltoall(self, outputs, inputs, opts=None):
        self._check_count('all_to_all', outputs)
        self._check_count('all_to_all', inputs)
        return self._exchange('all_to_all', outputs[self.rank()], outputs, inputs)

    @puts
    def alltoall_base(self, output, given, output_splits, input_splits, opts=None):
        if output_splits or input_splits:
            return self._exchange('all_to_all', output, self._split(output, output_splits),
                                  self._split(given, input_splits))
        check_alike([output], given, 'all_to_all')
        return self._exchange_evenly(output, self._split(output, ()), given,
                                     self._split(given, ()))

    def _exchange_evenly(self, output, outs, given, ins):
        result, finish = carrier_of(output, True), None
        if is_its_own(output, result):
            moved = carrier_of(given, True)
        else:   # each block is padded separately
            moved = torch.cat([carrier_of(block, True) for block in ins])
            result = torch.empty_like(moved)

            def finish():
                for block, out in zip(self._blocks(result), outs):
                    unload(block, out, True)
        part = self._push('all-to-all', moved, result, moved.numel() // self.size())
        return self._run('all_to_all', output, [part], [output], finish)

    def barrier(self, opts=None):
        nothing = torch.empty(0, dtype=torch.int32)
        earlier = list(self.open)
        barrier = self._run('barrier', nothing, [self._push('sum', nothing, nothing)],
                            kind=Barrier)
        barrier.earlier = earlier
        return barrier

    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        """Implements torch.distributed.monitored_barrier(). timeout: a timedelta, or seconds."""
        seconds = getattr(timeout, 'total_seconds', lambda: timeout)()
        monitored.pass_barrier(self, self.timeout_s if seconds is None else seconds,
                                wait_all_ranks)

    # ---- one to one ----

    def send(self, tensors, target, tag):
        tensor = only(tensors)
        return Operation(self, self._told(f'send to rank {target}', tensor),
                         [self._send(('send', tag), target, tensor)], [tensor]).start()

    @puts
    def recv(self, tensors, source, tag):
        tensor = only(tensors)
        if self._mailbox_key(tensor, tag) in self._mailboxes:
            # an earlier message of the source may be stored already
            return self._claim(tensor, tag, (source,))
        part, finish = self._receive(('send', tag), source, tensor)
        told = self._told(f'recv from rank {source}', tensor)
        return Operation(self, told, [part], [tensor], finish).start()

    @puts
    def recv_anysource(self, tensors, tag):
        tensor = only(tensors)
        key = self._mailbox_key(tensor, tag)
        if key not in self._mailboxes:
            model = torch.empty_like(tensor)
            self._mailboxes[key] = Mailbox(
                lambda mailbox, source: self._begin_receive(mailbox, tag, source, model))
        return self._claim(tensor, tag, tuple(rank for rank in range(self.size())
                                              if rank != self.rank()))

    def _mailbox_key(self, tensor, tag):
        return tag, tensor.dtype, tensor.numel()

    def _claim(self, tensor, tag, sources):
        mailbox = self._mailboxes[self._mailbox_key(tensor, tag)]
        values = carrier_of(tensor, True)
        crossing = crossing_of(self._job, values)

        def finish(message):
            crossing.bring([(values, message)])
            unload(values, tensor, True)
        return Claim(self, self._told('recv from any rank', tensor), mailbox, sources, [tensor],
                     crossing, finish).start()

    def _begin_receive(self, mailbox, tag, source, model):
        """Starts a receive for a Mailbox. The message stays on the host, because it may never be
        used."""
        message = room_for(self._job, carrier_of(model, True))
        slot = self._slot(self._channel(('send', tag), source, self.rank()), message)
        part = Part(slot, lambda of: self._job.receive(of, message))
        told = self._told(f'recv from rank {source}', model)
        return Operation(mailbox, told, [part]).start(), message

    def _exchange(self, what, tensor, outputs, inputs):
        """Sends block i of the inputs to rank i, and receives block i of the outputs from rank i.
        Both ranks of a transfer know whether the block is empty."""
        check_alike([inputs[self.rank()]], outputs[self.rank()], what)
        parts, finishes = [], []
        for peer, (output, given) in enumerate(zip(outputs, inputs)):
            if peer == self.rank():
                output.detach().copy_(given.detach().reshape(output.shape))
                continue
            if given.numel():
                parts.append(self._send((what,), peer, given))
            if output.numel():
                part, finish = self._receive((what,), peer, output)
                parts.append(part)
                finishes.append(finish)
        return self._run(what, tensor, parts, outputs,
                         lambda: [finish() for finish in finishes], place=what)

    def _send(self, kind, target, tensor):
        values = carrier_of(tensor, True)
        slot = self._slot(self._channel(kind, self.rank(), target), values)
        return self._part(slot, lambda of, given, _: self._job.send(of, given), values, None)

    def _receive(self, kind, source, tensor):
        values = carrier_of(tensor, True)
        slot = self._slot(self._channel(kind, source, self.rank()), values)
        part = self._part(slot, lambda of, _, result: self._job.receive(of, result), None, values)
        return part, lambda: unload(values, tensor, True)

    def _channel(self, kind, source, target):
        """Returns the Names of transfers from one rank to another. Only these two ranks use
        them."""
        key = *kind, source, target
        if source == target or not 0 <= source + target - self.rank() < self.size():
            raise mismatch(f'from rank {source} to rank {target} of a group of {self.size()}')
        if key not in self._channels:
            prefix = '/'.join(map(str, (self._prefix, *kind, f'{source}to{target}')))
            self._channels[key] = Names(self._job, prefix,
                                        (self._ranks[source], self._ranks[target]),
                                        _CHANNEL_NAMES_MAX)
        return self._channels[key]

    # ---- shared code ----

    def _run(self, what, tensor, parts, result=(), finish=None, place=None, kind=Collective):
        """Returns a collective. Without `place`, ranks compare their calls at the tensor of the
        only part."""
        if any(isinstance(part, Pieces) for part in parts):
            parts, place = self._said.beside(parts, what, tensor)
        self.order.note(place or parts[0].slot.tensor.name, what, tensor)
        return kind(self, self._told(what, tensor), parts, result, finish).start()

    def _told(self, what, tensor):
        return (f"{what} of {tensor.numel()} {str(tensor.dtype).removeprefix('torch.')} in process "
                f"group '{self._name}'")

    def _push(self, operation, given, result, elements=None):
        return self._cut(lambda of, given, result: self._job.push_pull(
            of, given, result, operation), given, result, elements)

    def _cut(self, begin, given, result, elements=None):
        """Returns the Part of a tensor, or Pieces. elements None: as many elements as the carriers
        have. `begin`: as in _part()."""
        carrier = result if given is None else given
        elements = carrier.numel() if elements is None else elements
        pieces = self._declared(lambda: self._names.pieces(carrier.dtype, elements))
        if pieces is None:
            return self._part(self._slot(self._names, carrier, elements), begin, given, result)
        crossing = crossing_of(self._job, given, result)
        blocks = [0 if one is None else one.numel() // elements for one in (given, result)]
        push = Push(begin, crossing.out(given), crossing.back(result), blocks, crossing)
        return Pieces(Part(slot, start, crossing, land)
                      for slot, start, land in push.pieces(pieces))

    def _part(self, slot, begin, given, result):
        """Returns a Part that calls begin(tensor, given, result) with the carriers on the host, or
        None."""
        crossing = crossing_of(self._job, given, result)
        sent, landing = crossing.out(given), crossing.back(result)
        return Part(slot, lambda of: crossing.begin(lambda: begin(of, sent, landing)), crossing)

    def _slot(self, names, carrier, elements=None):
        """Returns the Slot of a tensor with the carrier's length, or with `elements` elements. If
        the declaration fails, the group fails, because other ranks have declared the tensor."""
        return self._declared(lambda: names.slot(
            carrier.dtype, carrier.numel() if elements is None else elements))

    def _declared(self, declare):
        if self.failure is not None:
            raise self.failure
        try:
            return declare()
        except GradpoolError as error:
            self.fail(error)
            raise

    def _room_for_all(self, carrier):
        return carrier.new_empty(self.size() * carrier.numel())

    def _blocks(self, whole):
        return whole.view(self.size(), whole.numel() // self.size()).unbind()

    def _split(self, tensor, sizes):
        if not sizes and tensor.dim() and tensor.shape[0] % self.size() == 0:
            sizes = [tensor.shape[0] // self.size()] * self.size()
        if len(sizes) != self.size() or sum(sizes) != tensor.shape[0]:
            raise mismatch(f'all_to_all: splits {sizes} of a tensor of shape {tuple(tensor.shape)} '
                           f'in a group of {self.size()}; give one split for each rank, with '
                           'the sum of the first dimension')
        return tensor.split(list(sizes))

    def _check_count(self, what, tensors):
        if len(tensors) != self.size():
            raise mismatch(f'{what}: {len(tensors)} tensors for a group of {self.size()}')


def _make(options, _):
    """Creates a ProcessGroup for torch.distributed. Each default group of a process has its own
    job. Ranks that have left one default group may join the next while other ranks still use the
    first."""
    ranks = tuple(options.global_ranks_in_group)
    if ranks:
        rank, workers = torch.distributed.get_rank(), torch.distributed.get_world_size()
    else:
        rank, workers = options.group_rank, options.group_size
    return ProcessGroup(join(job_name(options, not ranks), None, rank, workers), options.group_id,
                        ranks or tuple(range(workers)), options.group_rank, options.timeout)


def _register():
    register = torch.distributed.Backend.register_backend
    # only torch 2 has the parameter `devices`
    has_devices = 'devices' in inspect.signature(register).parameters
    register('gradpool', _make, extended_api=True,
             **({'devices': ['cpu', 'cuda']} if has_devices else {}))


_register()
rendezvous.prepare()
monitored.offer()
uneven.offer()
interrupts.offer()
