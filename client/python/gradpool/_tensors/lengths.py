"""Tensors of lengths that change from call to call: gathered objects, last batches, sequences.

A declaration costs a round trip, and staging memory for as long as it is kept. So a length that
does not recur travels in pieces: powers of two, of each of which a sequence of operations keeps one
tensor, and a rest that is padded.

    1000000 = 524288 + 262144 + 131072 + 65536 + 16384 + 576 of 1024

A piece is a part of the values' own memory. The rest is copied, and so are pieces of several
ranks' blocks; padding is zeros, and is left where it lands."""
import collections

from .cuda import HERE

# The first lengths get tensors of their own: this many lengths, of up to this many bytes.
FIRST, FIRST_BYTES = 8, 16 << 20
# Others have when they have come again so often, with no more than so many others in between. What
# comes again within so many calls, as in several operations of one step, counts once.
_RECURS, _WINDOW, _APART = 4, 64, 8
# Tensors of one operation that may travel in pieces.
TOGETHER = 8
# Elements of the shortest piece, and of the shortest rest.
_PIECE, _REST = 4096, 64


class Habits:
    """Which keys recur, of those that all ranks bring in one order."""

    def __init__(self):
        self._uses = collections.OrderedDict()      # key -> (how often, at which call); used last
        self._calls = 0                             # is last

    def recurs(self, key):
        """Counts one use more."""
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
    """[(offset, length, size of the tensor that carries it)]"""
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
    """The tensors that carry pieces, for operations that all ranks make in one order.

    declare  of (dtype, {name: elements}): their Slots"""

    def __init__(self, declare):
        self._declare, self._slots = declare, {}

    def pieces(self, dtype, elements, place=0):
        """[(Slot, offset, length)] that carry so many elements; `place`: of which tensor of one
        operation, as no two of them share a piece."""
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
        """Returns the Slots and forgets them."""
        slots, self._slots = list(self._slots.values()), {}
        return slots


class Pieces(list):
    """The Parts of a push that travels in pieces."""


class Push:
    """A push to one tensor, whole or in pieces. `begin`(tensor, given, result) starts it.

    given, result  carriers on the host, or None; `given` may be called for one
    blocks         how many times the tensor's elements they hold"""

    def __init__(self, begin, given, result, blocks=(1, 1), crossing=HERE):
        self._start, self._blocks, self._crossing = begin, blocks, crossing
        self._given, self._result = given, result

    def _values(self):
        return self._given() if callable(self._given) else self._given

    def begin(self, tensor):
        """All of it."""
        return self._crossing.begin(
            lambda: self._start(tensor, self._values(), self._result))

    def pieces(self, pieces):
        """[(Slot, begin, land)] of [(Slot, offset, length)]: begin() is as for all of it, land()
        is for when the piece is there; None: nothing is left to do then."""
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
