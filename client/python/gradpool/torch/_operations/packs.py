"""Small tensors that are sent as one tensor, because a push of each tensor would cost more than the
transfer of its few bytes.

A pack is a flat tensor of one dtype on one device. The ranks agree on the shapes of all tensors in
the pack, so a rank with other shapes gets an error."""
import functools

import torch
from torch._C._nn import flatten_dense_tensors, unflatten_dense_tensors

from ..._tensors.carriers import check_place, told
from .calls import Broadcast, Reduction

SMALL_BYTES = 64 << 10      # a larger tensor is sent alone, without a copy
# maximum bytes of a pack; the first packs are sent while later gradients are computed
PACK_BYTES = 256 << 10


def cut(tensors):
    """Returns lists of positions of tensors that are sent together: small tensors with the same
    dtype and device, in their order. Every other tensor has its own list."""
    found, open_packs = [], {}
    for i, tensor in enumerate(tensors):
        size = tensor.numel() * tensor.element_size()
        kind = tensor.dtype, tensor.device
        pack, filled = open_packs.get(kind, ([], PACK_BYTES))
        if size > SMALL_BYTES or tensor.layout is not torch.strided:
            pack, filled = [], None
            found.append(pack)
        elif filled + size > PACK_BYTES:
            pack, filled = [], 0
            found.append(pack)
        pack.append(i)
        if filled is not None:
            open_packs[kind] = pack, filled + size
    return found


def flat_of(tensors):
    with torch.no_grad():
        return flatten_dense_tensors(tensors)


def parts_of(flat, tensors):
    """Returns views of a pack, one for each tensor."""
    return unflatten_dense_tensors(flat, tensors)


def shapes_of(tensors, like):
    """Returns the description of a pack's tensors, sent with the dtype of `like`."""
    return ', '.join(told(like, list(tensor.shape)) for tensor in tensors)


def _retell(call, travelling, shapes):
    """Replaces the shape of each pack by the shapes of its tensors, in the text of this call and in
    the text of the call that a rank in join() makes."""
    call.text = call.text.replace(', '.join(map(told, travelling)), shapes, 1)
    if call.neutral:
        call.neutral = functools.partial(_retold, call.neutral, call.text)


def _retold(neutral, text):
    call = neutral()
    call.text = text
    return call


class FlatReduction(Reduction):
    """Sends one pack, in place.

    shapes  shapes of the tensors in the pack
    last    the last element of the result, a flag of all ranks"""

    def __init__(self, ranks, flat, shapes, op, factors):
        super().__init__(ranks, [flat], [flat], op, factors)
        self.last = None
        _retell(self, [flat], shapes)

    def finish(self, plan):
        (_, landed), = self._places
        self.last = landed[-1].item()
        return super().finish(plan)


class GroupedReduction(Reduction):
    """Reduces many tensors into their outputs."""

    def __init__(self, ranks, tensors, outputs, op, factors):
        self._whole = []        # list of (pack, outputs of its tensors)
        travelling, landing = [], []
        for positions in cut(tensors):
            if len(positions) == 1:
                travelling.append(tensors[positions[0]])
                landing.append(outputs[positions[0]])
            else:
                flat = flat_of([tensors[i] for i in positions])
                self._whole.append((flat, [outputs[i] for i in positions]))
                travelling.append(flat)
                landing.append(flat)
        super().__init__(ranks, travelling, landing, op, factors)
        _retell(self, travelling, ', '.join(map(told, tensors)))

    def finish(self, plan):
        super().finish(plan)
        for flat, outputs in self._whole:
            put(flat, outputs)


class PackedBroadcast(Broadcast):
    """Copies the root's values of small tensors to every rank. The tensors have one dtype and
    device."""

    def __init__(self, ranks, tensors, root):
        for tensor in tensors:
            check_place(tensor)
        self._tensors, flat = tensors, flat_of(tensors)
        super().__init__(ranks, flat, root)
        _retell(self, [flat], shapes_of(tensors, flat))

    def finish(self, plan):
        super().finish(plan)
        put(self._output, self._tensors)


def put(flat, tensors):
    """Copies the values of a pack to their tensors."""
    with torch.no_grad():
        for tensor, part in zip(tensors, parts_of(flat, tensors)):
            tensor.copy_(part)
