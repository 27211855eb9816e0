"""Gradients of an optimizer's parameters, from .grad to the service and back: the gradient of one
parameter (Single), or the gradients of many small parameters that are sent as one tensor (Pack).

    how  attributes for all gradients of an optimizer: process_set, op, factors, compression,
         feedback (of a codec, or None), sparse_as_dense, passes (backward_passes_per_step), prefix
         (of names), prepared (agreement before the first gradient is sent), is_busy (some are being
         sent), altered (names of gradients that the script has changed), left (Left: their
         values)"""
import functools

import torch

from ..._tensors.carriers import lent_like
from ...errors import mismatch
from .._operations import collectives
from .._operations.calls import ReduceOp, Reduction
from .._operations.handles import begin
from .._operations.packs import FlatReduction, flat_of, parts_of, shapes_of
from .._operations.sparse import is_sparse_to_some
from ..compression import Compression
from .coded import CodedReduction


class Member:
    """A parameter whose gradients are sent.

    shape        shape of the parameter when its hook was set
    key          value that shows whether the parameter was replaced or changed its kind
    gate         a weak reference to its Gate
    passes       number of backward() that have added to the gradient since the last step
    gradient     the gradient while it is sent: the reference is needed, because torch would
                 otherwise create another object
    version      version of the gradient when it was complete, to detect later changes
    is_sparse    whether its gradients are sparse on some rank
    sparse_dims  sparse dimensions of a gradient that is sent as a dense one, else None
    is_gone      whether it takes part in one more round of all ranks, but not in the step"""
    __slots__ = ('name', 'parameter', 'shape', 'key', 'gate', 'passes', 'gradient', 'version',
                 'is_sparse', 'sparse_dims', 'is_gone')

    def __init__(self, name, parameter, key):
        self.name, self.parameter, self.key = name, parameter, key
        self.shape = parameter.shape
        self.gate = self.gradient = self.version = self.sparse_dims = None
        self.passes, self.is_sparse, self.is_gone = 0, False, False

    def nothing(self):
        """Returns a gradient of zeros, which is sparse if gradients of other ranks are sparse."""
        parameter = self.parameter
        if not self.is_sparse:
            return torch.zeros_like(parameter, requires_grad=False)
        return torch.sparse_coo_tensor(torch.empty(1, 0, dtype=torch.int64),
                                       parameter.new_empty((0, *parameter.shape[1:])),
                                       parameter.shape)

    def dense(self, gradient):
        """Returns a sparse gradient in dense form. It becomes sparse again before the step."""
        self.sparse_dims = gradient.sparse_dim()
        return gradient.to_dense()

    def place(self, has_one, gradient):
        """Sets the sparse gradient that all ranks have reduced. A parameter that the script has
        dropped gets no gradient."""
        if has_one or not self.is_gone:
            self.parameter.grad = gradient

    def expects_rows(self):
        """Records that the gradient is sparse on some rank. A rank that sent zeros now sends no
        rows. Raises an error if this rank has sent dense values."""
        gradient = self.parameter.grad
        if gradient is None or not gradient.is_sparse and not gradient.any():
            self.is_sparse = True
            if not self.is_gone:
                self.parameter.grad = self.nothing()

    def make_sparse(self):
        """Makes the gradient sparse again after it has arrived in dense form."""
        gradient = self.parameter.grad
        if gradient is not None and not gradient.is_sparse:
            self.parameter.grad = gradient.to_sparse(self.sparse_dims)


def zeros_of(parameter):
    """Returns a tensor of the gradient's shape and dtype for the agreement of ranks. Its values are
    not sent."""
    return torch.zeros(parameter.shape, dtype=parameter.dtype)


def _altered(members, gradients, versions):
    """Returns the names of parameters whose gradients have changed since they were sent."""
    is_same = all([member.parameter.grad is gradient
                   for member, gradient in zip(members, gradients)])
    if is_same and [gradient._version for gradient in gradients] == versions:
        return []
    return [member.name for member, gradient, version in zip(members, gradients, versions)
            if member.parameter.grad is not gradient or gradient._version != version]


class Single:
    """The gradient of one parameter."""

    def __init__(self, how, members, name):
        self._how, self.members, self.name = how, members, name
        self.handle = self._sent = None
        self.brought = []       # descriptions of all ranks, if they disagree

    def leave(self, members):
        """Removes members whose gradients no rank sends any more."""
        self.members = [member for member in self.members if member not in members]

    def call(self, ranks):
        """Returns the operation on which ranks agree."""
        member, = self.members
        nothing, how = zeros_of(member.parameter), self._how
        if how.feedback:
            return self._coded(ranks, nothing, is_sent=False)
        model = how.compression.compress(nothing)[0]
        return Reduction(ranks, [model], [model], how.op, how.factors)

    def _coded(self, ranks, tensor, is_sent):
        how = self._how
        if how.factors != (1.0, 1.0):
            raise mismatch('gradient_predivide_factor with a codec: leave it out')
        return CodedReduction(ranks, how.feedback, {self.members[0].name: tensor}, how.op, is_sent)

    def send(self):
        member, = self.members
        parameter, how, ranks = member.parameter, self._how, self._how.process_set.sequences()
        gradient = parameter.grad
        if gradient is not None and member.version not in (None, gradient._version):
            how.altered.append(member.name)
        if gradient is None:
            gradient = member.nothing()
        elif gradient.is_sparse and how.sparse_as_dense:
            gradient = member.dense(gradient)
        if parameter.grad is not gradient and not member.is_gone:
            parameter.grad = gradient
        self._sent = [gradient], [gradient._version]
        way = self._sparse if gradient.is_sparse else self._code if how.feedback else self._dense
        self.handle = way(ranks, member, gradient)

    def _code(self, ranks, _, gradient):
        # a codec may write the result at any time, so the codec gets a copy
        place = gradient.detach().clone()

        def land():
            with torch.no_grad():
                gradient.copy_(place)
        return begin(ranks, self._coded(ranks, place, True), self.name, land)

    def _dense(self, ranks, _, gradient):
        """Returns the tensor to send, the tensor for the mean, and the context of decompress(). The
        mean is written to lent memory beside the gradient. Afterwards this memory becomes the
        gradient's memory: nothing is copied, and the next gradient is accumulated in lent memory
        (Y20). The sent tensor has its own version counter. No mean is written to a gradient before
        the step, because Left compares gradients to detect writes of the script."""
        how = self._how
        travel, known = how.compression.compress(gradient)
        room, given = lent_like(ranks.job, travel), travel.data
        is_beside = room is None and travel is gradient and given.is_cpu
        output = torch.empty_like(given) if is_beside else given if room is None else room

        def land():
            if travel is not gradient:
                gradient.copy_(how.compression.decompress(output, known))
            elif is_beside:
                given.copy_(output)
            elif output is not given:
                gradient.data = output
        return begin(ranks, Reduction(ranks, [given], [output], how.op, how.factors), self.name,
                     land)

    def _sparse(self, ranks, member, gradient):
        how, member.is_sparse = self._how, True
        # after zero_() a gradient has no rows, and all its dimensions are sparse
        if gradient._nnz() == 0:
            gradient = member.nothing()
        handle = collectives.sparse_allreduce_async(
            gradient, self.name, how.op, how.process_set, *how.factors,
            Compression.none if how.feedback else how.compression)
        return handle.then(functools.partial(member.place, member.parameter.grad is not None))

    def land(self):
        """Waits until the gradient of all ranks is in its place."""
        member, = self.members
        if self._sent and not member.is_gone:
            self._how.altered += _altered(self.members, *self._sent)
        handle, self.handle = self.handle, None
        try:
            handle.wait()
        finally:
            self.brought = handle.brought()
        self._sent = None
        return False

    def goes_again(self):
        """After a Mismatch: returns whether the gradient can be sent once more. A gradient that is
        sparse on some ranks only can be sent again, because all ranks have learned this from the
        Mismatch."""
        if not is_sparse_to_some(self.brought):
            return False
        self.members[0].expects_rows()
        return True


# Two values of the flag, the last element of a pack: no gradient of the pack is sparse on this
# rank, or one is sparse. If any rank sends the second value, the result differs from the first
# value.
_FLAGS = {ReduceOp.Average: (0, 1), ReduceOp.Sum: (0, 1), ReduceOp.Max: (0, 1),
          ReduceOp.Min: (0, -1), ReduceOp.Product: (1, 0)}


class Pack:
    """Gradients of several small parameters. A sparse gradient is not sent in a pack. If a gradient
    is sparse on any rank, the flag shows this to all ranks, and the parameter leaves the pack
    (Y92)."""

    def __init__(self, how, members, name):
        self._how, self.members, self.name = how, members, name
        self._quiet, self._loud = _FLAGS.get(how.op, (0, 1))
        self._told = self.handle = self._sent = self._room = None

    def call(self, ranks):
        """Returns the operation on which ranks agree."""
        flat, _ = self._flat([zeros_of(member.parameter) for member in self.members], False)
        return FlatReduction(ranks, flat, self._shapes(flat), self._how.op, self._how.factors)

    def _flat(self, gradients, is_flagged):
        """Returns the tensor to send, and the context of decompress()."""
        value = self._loud if is_flagged else self._quiet
        flag = gradients[0].new_full((1,), complex(value, value) if gradients[0].is_complex()
                                     else value)    # a complex number has two elements
        compression = Compression.none if self._how.feedback else self._how.compression
        return compression.compress(flat_of([*gradients, flag]))

    def _shapes(self, flat):
        key = flat.numel(), flat.dtype, len(self.members)
        if self._told is None or self._told[0] != key:
            parameters = [member.parameter for member in self.members]
            self._told = key, shapes_of(parameters, flat)
        return self._told[1]

    def leave(self, members):
        """Removes members whose gradients no rank sends any more."""
        self.members = [member for member in self.members if member not in members]
        self._told = None

    def send(self):
        ranks, members = self._how.process_set.sequences(), self.members
        gradients = [member.parameter.grad for member in members]
        versions, is_flagged = [member.version for member in members], False
        if any([one is None or one.is_sparse for one in gradients]):
            gradients = list(map(self._brought, members, gradients, versions))
            versions = [None] * len(members)
            is_flagged = any(member.is_sparse for member in members)
        now = [gradient._version for gradient in gradients]
        if versions != now:
            self._how.altered += [member.name for member, was, is_now in zip(
                members, versions, now) if was is not None and was != is_now]
        flat, known = self._flat(gradients, is_flagged)
        self._sent = members, gradients, now, known
        call = FlatReduction(ranks, flat, self._shapes(flat), self._how.op, self._how.factors)
        self.handle = begin(ranks, call, self.name, lambda: (call.last, flat))

    def _brought(self, member, gradient, version):
        """Returns the dense gradient of a member for sending: zeros if the member has no
        gradient."""
        parameter = member.parameter
        if gradient is not None and version not in (None, gradient._version):
            self._how.altered.append(member.name)
        if gradient is None:
            made = torch.zeros_like(parameter, requires_grad=False)
        elif not gradient.is_sparse:
            return gradient
        elif not self._how.sparse_as_dense:
            member.is_sparse = True
            return torch.zeros_like(parameter, requires_grad=False)
        else:
            made = member.dense(gradient)
        if not member.is_gone:
            parameter.grad = made
        return made

    def land(self):
        """Waits until the gradients of all ranks are in their places. Returns whether some are
        sparse on any rank."""
        handle, self.handle = self.handle, None
        last, flat = handle.wait()
        (members, gradients, versions, known), self._sent = self._sent, None
        compression = Compression.none if self._how.feedback else self._how.compression
        whole = compression.decompress(flat, known)
        aside = {member.name for member in members if member.is_gone or member.is_sparse}
        self._how.altered += [name for name in _altered(members, gradients, versions)
                              if name not in aside]
        self._put(whole, gradients)
        return last != self._quiet

    def _put(self, whole, gradients):
        """Copies the results to memory whose views exist already: new views would cost more than
        the copies."""
        shapes = [gradient.shape for gradient in gradients]
        key = shapes, whole.dtype, whole.device
        if self._room is None or self._room[0] != key:
            room = torch.empty_like(whole)
            self._room = key, room, parts_of(room, gradients)
        _, room, parts = self._room
        with torch.no_grad():
            room.copy_(whole)
            for gradient, part in zip(gradients, parts):
                gradient.copy_(part)

    def goes_again(self):
        """Returns False: ranks that disagree about a pack have different parameters."""
        return False
