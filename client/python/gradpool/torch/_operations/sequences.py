"""Operations that ranks match by name. Operations with different names may be called in any order,
and several may be open at once.

All operations with one name in one set of ranks are a Sequence. In the first operation, and in each
operation that differs from the previous one, every rank sends a description, called words. All
other operations are only rounds of the tensors that were declared for the agreement.

    rank 0   x: float32[3]   words ---+--> agreed: tensors are declared   round  round ...
    rank 1   x: float32[3]   words ---+                                   round  round ...

If the operation of one rank differs from the former agreement and the other ranks continue, this
rank also pushes marks to the tensors of the former agreement. A mark is a push with a reduction
that no round uses, so the service reports a disagreement to every rank. Then all ranks send words,
and each raises the same Mismatch. The rounds themselves need no check."""
import collections
import contextlib
import errno
import functools
import hashlib
import itertools
import struct
import time

import torch

from ... import errors
from ..._group import operations
from ..._group.operations import Operation, Part, Slot
from ..._native.binding import encode
from ..._tensors.lengths import FIRST, Habits, Pool, TOGETHER
from ...errors import GradpoolError, Mismatch, mismatch, Timeout
from .joined import refusal

_WORDS = 128                # number of 32-bit integers for the words of a rank
_HEAD = struct.Struct('<16sq')
_TEXT_BYTES = 4 * _WORDS - _HEAD.size
_NAME_BYTES = 160           # longest name of a tensor in the service
_TOLD_CHARS = 80  # maximum number of characters for one operation in a list of several operations
# Time for which a waiting thread checks only its own operation. Afterwards it checks all open
# operations.
_PATIENCE_S = 0.05
# Maximum total bytes of the tensors for first lengths. A new length costs marks on all of these
# tensors.
_FIRST_BYTES = 4 << 20
# Number of lists that a rank sends in the second half of a deadline. A single list is not enough,
# because a list of another rank may belong to an earlier wait.
_TELLS = 4


def short(name):
    """Returns a name of valid length for the service, different for each name."""
    raw = encode(name, 'the name of an operation')
    if len(raw) <= _NAME_BYTES:
        return name
    return raw[:_NAME_BYTES // 2].decode(errors='ignore') + hashlib.sha256(raw).hexdigest()


class Plan:
    """An agreement of all ranks on an operation, and the declared tensors for it.

      slots    Slots of its tensors; None: `pieces` carry the values, and each operation sends words
      pieces   for each tensor [(Slot, offset, length)]
      neutral  function that starts the operation without values of this rank (join), or None
      rounds   number of operations that this rank has begun
      mark     an operation of the service that no round of this plan has"""

    def __init__(self, text, slots, neutral, room=0, pieces=None):
        self.text, self.slots, self.neutral, self.room = text, slots, neutral, room
        self.pieces, self.rounds = pieces, 0
        self.mark = 'max' if text.startswith(('allgather', 'sparse')) else 'gather'


class _Failed:
    """Replaces the request of a push that was refused at once."""

    def __init__(self, error):
        self._error = error

    def done(self, timeout_ms=0):
        return True

    def wait(self, timeout_ms=0):
        raise self._error


class NamedPart(Part):
    """A Part whose wait raises the error of a refused push."""

    def begin(self):
        try:
            self.request = self._begin(self.slot.tensor)
        except GradpoolError as error:
            self.request = _Failed(error)


class Sequence:
    """The operations of a name among the ranks of a set.

      ranks      the set: `job`, `members` (None: all), `count`, `rank_of(i)`, `roll`
      plans_max  largest number of stored agreements: one for a name that the script gave
      unnamed    number of calls without a name; None: the script gave the name
      said       number of times that this rank has sent its words"""

    raised_by = 'GRADPOOL_TIMEOUT_MS'   # setting of the time-out, for error texts

    def __init__(self, ranks, name, plans_max, timeout_s):
        self.ranks, self.name, self.timeout_s = ranks, name, timeout_s
        self.open, self.failure = set(), None
        self.unnamed = 0 if plans_max > 1 else None
        self.plans = collections.OrderedDict()      # text of an agreement -> its Plan
        self._plans_max, self._declared = plans_max, 0
        self._path = f'{ranks.path}/{short(name)}'
        # list with the Slot for the ranks' words; None: not created yet
        self._words = None
        self._holder, self._queue = None, collections.deque()
        self._forgotten, self._is_broken, self.said = [], False, 0
        self._bytes, self._habits, self._pool = 0, None, Pool(self._declare_pieces)

    def next_name(self):
        """Returns the name of the next operation. Calls without a name get a number."""
        if self.unnamed is None:
            return self.name
        self.unnamed += 1
        return f'{self.name}.{self.unnamed}'

    # ---- order of operations ----

    def admit(self, operation):
        """Called with the lock held. Begins the operation, or puts it into the queue. An operation
        that sends words or may declare tensors must end before later operations begin, so that all
        ranks have the same agreements at each start."""
        if self._holder is None:
            self._begin(operation)
        else:
            self._queue.append(operation)

    def release(self, operation):
        with operations.lock():
            if self._holder is operation:
                self._holder = None
            while self._holder is None and self._queue:
                self._begin(self._queue.popleft())

    def _begin(self, operation):
        if operation.begin():
            self._holder = operation

    def fail(self, error):
        """Fails the Sequence, except after a disagreement: then all ranks have the same error, and
        the next operation compares the ranks' arguments again. After any other error this rank does
        not know which rounds other ranks have begun."""
        if isinstance(error, Mismatch) and not self._is_broken:
            return
        if self.failure is None:
            self.failure = error
        for operation in list(self.open):
            operation.end(self.failure)

    # ---- agreements ----

    def say(self, words, whole):
        """Returns the Part with this rank's words. The words of all ranks are written to
        `whole`."""
        if self._words is None:
            self._words = self._declare([(torch.int32, _WORDS)], '/(words)')
            self.ranks.roll.declare()
            self.ranks.joined.declare()
        self.said += 1
        return NamedPart(self._words[0], lambda of: self.ranks.job.push_pull(of, words, whole,
                                                                          'gather'))

    def marks(self):
        """Returns marks on the tensors of all agreements. Ranks that continue as before get an
        error in their next round."""
        return [NamedPart(slot, functools.partial(self._mark, plan.mark))
                for plan in self.plans.values() for slot in plan.slots]

    def has_neutral(self):
        """Returns whether ranks in join() continue with an operation of that name."""
        return any(plan.neutral for plan in self.plans.values())

    def counterparts(self):
        """Returns marks on tensors without a round of this rank. A rank that has marked one tensor
        has marked all tensors, and waits for a mark on each."""
        return [part for part in self.marks() if not part.slot.parts]

    def _mark(self, mark, tensor):
        nothing = torch.zeros(tensor.elements, dtype=getattr(torch, tensor.dtype))
        return self.ranks.job.push_pull(tensor, nothing, None, mark)

    def adopt(self, call, room):
        """Returns the Plan of an agreement, with declared tensors. The former agreements decide
        whether the agreement gets its own tensors, so all ranks decide in the same way."""
        text, sizes, neutral = call.text, call.sizes(room), call.neutral
        if hasattr(call, 'pushes') and not self._is_kept(text, sizes):
            return Plan(text, None, neutral, room, self._pieces(sizes))
        while len(self.plans) >= self._plans_max:
            self._forget(self.plans.popitem(last=False)[1].slots)
        plan = self.plans[text] = Plan(text, self.next_tensors(sizes), neutral, room)
        return plan

    def _is_kept(self, text, sizes):
        """Returns whether an agreement gets its own tensors. Large groups get tensors. Other
        agreements get tensors while the stored agreements are few and small, later only if the
        agreement recurs. Each stored agreement costs marks."""
        if len(sizes) > TOGETHER or not any(elements for _, elements in sizes):
            return True
        if self._habits is None:
            self._bytes += sum(elements * dtype_bytes(dtype) for dtype, elements in sizes)
            few = FIRST if self.unnamed is not None else 1
            if len(self.plans) < few and (not self.plans or self._bytes <= _FIRST_BYTES):
                return True
            self._habits = Habits()
            for plan in self.plans.values():
                self._forget(plan.slots)
            self.plans.clear()
        return self._habits.recurs(text)

    def take(self, text, slots, neutral):
        """Stores the Plan of an agreement whose tensors were declared together with others."""
        self.plans[text] = Plan(text, slots, neutral)

    def _pieces(self, sizes):
        return [self._pool.pieces(dtype, elements, place)
                for place, (dtype, elements) in enumerate(sizes)]

    def replace(self, plan, sizes):
        """Declares other tensors for an agreement."""
        if plan.slots is None:
            plan.pieces = self._pieces(sizes)
            return
        self._forget(plan.slots)
        plan.slots = self.next_tensors(sizes)

    def abandon(self):
        """Drops the tensors of an agreement in which ranks had different operations. If the calls
        have no name, their order is lost, and the Sequence is unusable."""
        with operations.lock():
            self._is_broken = self.unnamed is not None
            for plan in self.plans.values():
                for slot in plan.slots:
                    slot.parts.clear()
                self._forget(plan.slots)
            self.plans.clear()

    def next_tensors(self, sizes):
        self._declared += 1
        return self._declare(sizes, f'/{self._declared}')

    def next_names(self, count):
        """Returns the names of the tensors that next_tensors() would declare."""
        return [f'{self._path}/{self._declared + 1}.{i}' for i in range(count)]

    def skip(self):
        self._declared += 1

    def _declare(self, sizes, suffix):
        self.ranks.door.forget()
        self._forgotten = [slot for slot in self._forgotten if not slot.end()]
        names = [f'{self._path}{suffix}.{i}' for i in range(len(sizes))]
        return declare_all(self.ranks, dict(zip(names, sizes)))

    def _declare_pieces(self, dtype, elements):
        return declare_all(self.ranks, {f'{self._path}/{name}': (dtype, count)
                                        for name, count in elements.items()})

    def _forget(self, slots):
        self._forgotten += slots

    def forget_all(self):
        """Undeclares all tensors of this Sequence."""
        self.ranks.door.forget(itertools.chain(
            self._words or (), self._forgotten, self._pool.drain(),
            *[plan.slots for plan in self.plans.values()]))


def declare_all(ranks, size_by_name):
    """Returns Slots of {name: (dtype, elements)}; all tensors of a dtype are declared at once."""
    found = {}
    for dtype in dict.fromkeys(dtype for dtype, _ in size_by_name.values()):
        elements = {name: size[1] for name, size in size_by_name.items() if size[0] is dtype}
        made = ranks.job.declare_all(elements, str(dtype).removeprefix('torch.'),
                                     ranks=ranks.members)
        for tensor in made:
            found[tensor.name] = Slot(tensor, tensor.elements * dtype_bytes(dtype))
    return [found[name] for name in size_by_name]


def dtype_bytes(dtype):
    return torch.empty(0, dtype=dtype).element_size()


class NamedOperation(Operation):
    """One operation of a Sequence. `call` (module calls) has:

    kind       "allreduce" and so on
    text       description that must be the same on every rank
    neutral    as in Plan
    recipe     picklable function of (ranks) that makes the call on other ranks; or None
    room       None, or the number of bytes from this rank to each other rank
    crossing   transfer of its values to the host and back
    sizes(room)    [(dtype, elements)] of its tensors; `room`: the largest of all ranks
    parts(plan)    [(slot, begin)]
    pushes(plan)   [Push] of the same values; optional: such a call may be sent in pieces
    finish(plan)   copies the result. True: repeat the operation with other tensors

    `brought`: descriptions of all ranks after a disagreement. `has_joined`: this rank is in join().
    A rank in join() sends no values, and sends a description only if ranks disagree."""

    def __init__(self, sequence, call, has_joined=False):
        self._name = sequence.next_name()
        who = f"{call.kind} '{self._name}', rank {sequence.ranks.job.rank}"
        super().__init__(sequence, who, [])
        self._is_asked = True       # torch's own code never queries this operation (Y10)
        self._call, self._plan, self._whole = call, None, None
        self._has_begun = self._is_saying = self._has_marks = False
        self._has_joined = has_joined
        self._words = f'{call.text}, in join()' if has_joined else call.text
        self.brought = []

    def start(self):
        with operations.lock():
            if self._group.failure is not None:
                raise self._group.failure
            self._group.open.add(self)
            self._group.admit(self)
            is_simple = self._has_begun and not self._is_saying
        if not is_simple:
            self.hand_over()
        return self

    def begin(self):
        """Called with the lock held when no earlier operation blocks this operation. Returns
        whether later operations have to wait."""
        if self._over.is_set():
            return False
        try:
            self._plan = self._group.plans.get(self._call.text)
            parts = self._rounds() if self._plan else self._say(self._group.marks())
        except Exception as error:
            self.end(error)
            return False
        self._has_begun, self._parts = True, parts
        for part in parts:
            part.queue(self)
        return self._is_saying or self._call.room is not None

    def wait(self, timeout=None):
        """Returns when the result is in place, or raises the error. After a long wait the
        completion thread also continues with all other open operations, because other ranks may
        need them first. After half of the deadline this rank sends its list of open operations
        (Y19)."""
        self._is_asked = True
        if self._take():
            with contextlib.suppress(Timeout):
                self._see_through(min(_PATIENCE_S, self._left_s()))
        if not self._over.is_set():
            self._group.ranks.hand_over_all()
            self._wait_and_tell()
            if not self._over.wait(max(self._left_s(), 0) + operations.GRACE_S):
                limit_s = self._group.timeout_s
                raise Timeout(errno.ETIMEDOUT, f'{self._what}: not over within {limit_s:g} s; wait '
                              'longer, or look at the ranks that are missing')
        self._raise_or_follow()
        return True

    def _wait_and_tell(self):
        half_s = max(self._left_s() / 2, 0)
        self._over.wait(half_s)
        for _ in range(_TELLS):
            if self._over.is_set():
                return
            self._group.ranks.roll.tell()
            self._over.wait(half_s / _TELLS)

    def look(self):
        """Does all work that needs no wait. Returns whether the operation is over."""
        if self._borrow():
            if self._is_ready():
                with contextlib.suppress(Timeout):
                    self._see_through(0.001)
            else:
                self._is_taken = False
        return self._over.is_set()

    def rest(self, limit_ms):
        """Waits for the present part for at most `limit_ms`. Returns False if there is no part, or
        if another thread waits for the part."""
        if not self._borrow():
            return False
        request = self.waits_for()
        if request:
            request.done(limit_ms)
        self._is_taken = False
        return request is not None

    def _borrow(self):
        """Reserves the operation for this thread. Returns False if another thread checks the
        requests."""
        with operations.lock():
            is_free = not self._over.is_set() and not self._is_taken
            self._is_taken |= is_free
        return is_free

    def has_begun(self):
        """Returns whether the operation has begun."""
        return self._has_begun

    def is_over(self):
        """Also lets the completion thread check for ranks in join() that cannot take part."""
        if self._needs_all():
            call = self._for_joined()
            joined = self._group.ranks.joined.find(call, self._group.timeout_s - self._left_s())
            if joined:
                self.end(refusal(joined))
        return super().is_over()

    def _needs_all(self):
        """Returns whether ranks in join() cannot begin the operation by themselves."""
        if self._over.is_set() or not self._has_begun or self._has_joined \
                or self._name.startswith('(join'):
            return False
        if self._group.ranks.members is not None:   # join() is an operation of all ranks
            return True
        if self._has_marks and self._group.has_neutral():
            return False  # a mark causes an error in the next round of the rank in join()
        return self._is_saying or self._plan.neutral is None

    def _for_joined(self):
        """Returns the description with which ranks in join() begin the operation: (name, whether
        the script gave the name, number of the words, text, recipe). Returns None if ranks in
        join() cannot begin the operation."""
        is_part = self._group.ranks.members is not None
        if is_part or not self._is_saying or self._has_marks or self._call.recipe is None:
            return None
        of = self._group
        return of.name, of.unnamed is None, of.said, self._call.text, self._call.recipe

    def told(self):
        """Returns a short description of the operation for other ranks."""
        return f'{self._name} ({self._call.text[:_TOLD_CHARS]})'

    def _told(self, error):
        told = super()._told(error)
        if not isinstance(error, Timeout) or error is self._group.failure:
            return told
        how = '' if self._group.unnamed is None else \
            'Calls without a name are matched by their order: make them in the same order on all ' \
            'ranks, or name them. '
        since_s = time.time() - self._group.timeout_s + self._left_s()
        return Timeout(errno.ETIMEDOUT, f'{told}. {how}{self._group.ranks.roll.told(since_s)}')

    def end(self, error):
        super().end(error)
        self._group.release(self)

    def _is_begun(self):
        return self._has_begun and super()._is_begun()

    # ---- stages ----

    def _pass(self, until_s):
        if not self._has_begun:
            raise Timeout(errno.ETIMEDOUT, 'an earlier operation of that name is not over')
        clash = self._clash(until_s)
        if self._is_saying:
            return self._agree(clash)
        if clash is not None:
            self._parts = []
            return self._say(self._group.counterparts(), clash)
        finish = functools.partial(self._call.finish, self._plan)
        if not self._land((self._call.crossing,), finish):
            return None
        self._group.replace(self._plan, self._call.sizes(self._plan.room))
        return self._rounds()

    def _clash(self, until_s):
        """Waits for all parts. Returns the service's error about ranks with different operations,
        or None."""
        first = None
        for part in self._parts:
            try:
                self._wait_for(part, until_s)
            except Mismatch as error:
                first = first or error
        return first

    def _rounds(self):
        self._plan.rounds += 1
        if self._plan.slots is not None:
            return [NamedPart(slot, begin) for slot, begin in self._call.parts(self._plan)]
        return [NamedPart(slot, begin, land=land)
                for push, pieces in zip(self._call.pushes(self._plan), self._plan.pieces)
                for slot, begin, land in push.pieces(pieces)]

    def _say(self, marks, clash=None):
        self._is_saying, self._first_clash = True, clash
        self._has_marks = bool(marks or clash)
        words = torch.zeros(_WORDS, dtype=torch.int32)
        raw = self._words.encode()
        said = bytearray(_HEAD.pack(hashlib.sha256(raw).digest()[:16], self._call.room or 0)
                         + raw[:_TEXT_BYTES])
        words.view(torch.uint8)[:len(said)] = torch.frombuffer(said, dtype=torch.uint8)
        self._whole = torch.empty(self._group.ranks.count * _WORDS, dtype=torch.int32)
        return marks + [self._group.say(words, self._whole)]

    def _agree(self, clash):
        """Ends the stage of words, after all ranks have sent them."""
        clash = clash or self._first_clash
        self._leave(clash)
        self._is_saying = False
        said = [_HEAD.unpack_from(raw) + (_text(raw),) for raw in self._blocks()]
        if len({digest for digest, _, _ in said}) > 1:
            self.brought = [text for _, _, text in said]
            raise mismatch(disagreement(self.brought, self._group.ranks))
        if clash:
            raise clash
        room = max(room for _, room, _ in said)
        self._plan = self._group.adopt(self._call, room)
        return self._rounds()

    def _go_on(self, parts):
        super()._go_on(parts)
        if not self._is_saying and self._call.room is None:
            self._group.release(self)   # the next operation is queued behind the parts of this one

    def _leave(self, clash):
        """Drops the tensors that were pushed so far, unless other ranks may need them. A tensor on
        which ranks have different operations is not needed."""
        with operations.lock():
            self._parts.pop().leave()
            for part in self._parts if clash is None else ():
                part.leave()
            self._parts = []
        if clash is not None:
            self._group.abandon()

    def _blocks(self):
        return [bytes(block.tolist()) for block in
                self._whole.view(torch.uint8).view(self._group.ranks.count, -1)]


def _text(raw):
    return raw[_HEAD.size:].rstrip(b'\0').decode(errors='ignore')


def disagreement(texts, ranks):
    told = errors.disagreement(texts, [ranks.rank_of(i) for i in range(len(texts))])
    return f'{told}. All ranks must use one name for the same operation, dtype, shape and root'
