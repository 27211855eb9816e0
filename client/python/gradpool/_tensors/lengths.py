"""Tensors whose lengths change from call to call: gathered objects, last batches, sequences.

A declaration costs a round trip and staging memory. So a tensor of a length that does not recur is
sent in pieces. The length of a piece is a power of two. A sequence of operations declares one
tensor for each such length. The remaining elements are sent in a padded piece.

    1000000 = 524288 + 262144 + 131072 + 65536 + 16384 + 576 of 1024

A piece is sent from the memory of the values. The remaining elements are copied before they are
sent, and so are pieces that contain blocks of several ranks. Padding consists of zeros and is never
copied back."""
import collections

from .cuda import HERE

# Each of the first lengths gets its own tensor: at most FIRST lengths, with at most FIRST_BYTES in
# total.
FIRST, FIRST_BYTES = 8, 16 << 20
# A later length gets its own tensor after this many uses, with at most _WINDOW other lengths in
# between. Uses within _APART calls, as in several operations of one step, count once.
_RECURS, _WINDOW, _APART = 4, 64, 8
# An operation with more tensors than this is not sent in pieces.
TOGETHER = 8
# number of elements of the shortest piece, and of the shortest padded piece
_PIECE, _REST = 4096, 64


class Habits:
    """Finds lengths that recur. All ranks call this object with the same lengths in the same
    order."""

    def __init__(self):
        # key -> (number of uses, call of the last use), sorted by last use
        self._uses = collections.OrderedDict()
        self._calls = 0

    def recurs(self, key):
        """Counts one more use. Returns whether the length recurs."""
        self._calls += 1
        uses, counted = self._uses.pop(key, (0, -_APART))
        if self._calls - counted >= _APART:
            uses, counted = uses + 1, self._calls
        self._uses[key] = uses, counted
        if len(self._uses) > _WINDOW:
            self._uses.popitem(last=False)
        return uses >= _RECURS

    def is_recent(self, key):
        return key in self._uses


def cut(elements):
    """Returns [(offset, length, size of the tensor for this piece)]."""
    found, offset = [], 0
    for bit in range(elements.bit_length() - 1, _PIECE.bit_length() - 2, -1):
        if elements >> bit & 1:
            found.append((offset, 1 << bit, 1 << bit))
            offset += 1 << bit
    rest = elements - offset
    if rest:
        found.append((offset, rest, max(_REST, 1 << (rest - 1).bit_length())))
    return found


class Pool:
    """Declared tensors for pieces. All ranks do the same operations in the same order.

    declare  function of (dtype, {name: elements}) that returns Slots"""

    def __init__(self, declare):
        self._declare, self._slots = declare, {}

    def pieces(self, dtype, elements, place=0):
        """Returns [(Slot, offset, length)] for that many elements. `place`: number of the tensor
        within the operation. Two tensors of one operation use different Slots."""
        cuts = cut(elements)
        told = f"{place or ''}{str(dtype).removeprefix('torch.')}"
        names = [f"{told}.{'rest' if length < _PIECE else ''}{size}"
                 for _, length, size in cuts]
        fresh = {name: size for name, (_, _, size) in zip(names, cuts) if name not in self._slots}
        if fresh:
            self._slots.update(zip(fresh, self._declare(dtype, fresh)))
        return [(self._slots[name], offset, length)
                for name, (offset, length, _) in zip(names, cuts)]

    def drain(self):
        """Returns the Slots and removes them."""
        slots, self._slots = list(self._slots.values()), {}
        return slots


class Pieces(list):
    """The Parts of a push that is sent in pieces."""


class Push:
    """A push to one tensor, whole or in pieces. `begin`(tensor, given, result) starts the push.

    given, result  carriers on the host, or None; `given` may be a function that returns a carrier
    blocks         lengths of given and result, in multiples of the tensor's length"""

    def __init__(self, begin, given, result, blocks=(1, 1), crossing=HERE):
        self._start, self._blocks, self._crossing = begin, blocks, crossing
        self._given, self._result = given, result

    def _values(self):
        return self._given() if callable(self._given) else self._given

    def begin(self, tensor):
        """Pushes all values at once."""
        return self._crossing.begin(
            lambda: self._start(tensor, self._values(), self._result))

    def pieces(self, pieces):
        """Returns [(Slot, begin, land)] for [(Slot, offset, length)]. begin() starts the piece
        like begin() of the whole tensor. `land` is called after the arrival of the piece; None: no
        call is needed."""
        return [(slot, *self._piece(slot, offset, length)) for slot, offset, length in pieces]

    def _piece(self, slot, offset, length):
        size, end = slot.tensor.elements, offset + length
        place, land = self._result, None
        if place is not None and self._blocks[1] == 1 and size == length:
            place = place.view(-1)[offset:end]
        elif place is not None:
            place = place.new_empty(self._blocks[1] * size)
            part = self._result.view(self._blocks[1], -1)[:, offset:end]

            def land():
                part.copy_(place.view(self._blocks[1], -1)[:, :length])

        def begin(tensor):
            return self._crossing.begin(lambda: self._start(
                tensor, self._part(size, offset, length), place))
        return begin, land

    def _part(self, size, offset, length):
        values, blocks = self._values(), self._blocks[0]
        if values is None:
            return None
        if blocks == 1 and size == length:
            return values.view(-1)[offset:offset + length]
        padded = values.new_zeros(blocks, size)
        padded[:, :length] = values.view(blocks, -1)[:, offset:offset + length]
        return padded.view(-1)
