"""Sets of ranks, whose operations involve only these ranks."""
import collections
import contextlib
import hashlib

from ..errors import mismatch
from ._operations.joined import Joined
from ._operations.roll import Roll
from ._operations.sequences import Sequence

# Number of agreements that are stored for each kind of call without a name.
_UNNAMED_PLANS = 32


class ProcessSet:
    """Some ranks of the job, as ProcessSet([0, 2]) or ProcessSet(0, 2). add_process_set() or init()
    registers the set, on all ranks in the same order."""

    process_set_id = None

    def __init__(self, *ranks):
        if len(ranks) == 1 and not isinstance(ranks[0], int):
            ranks = ranks[0]
        self.ranks = sorted(ranks)
        self._known = None

    def included(self):
        """Returns whether this process is in the set."""
        return self._door().rank in self.ranks

    def rank(self):
        """Returns this process's rank in the set, from 0."""
        self.sequences()
        return self.ranks.index(self._door().rank)

    def size(self):
        self._door()
        return len(self.ranks)

    def sequences(self):
        """Returns the set's Sequences. Raises Mismatch if this rank is not in the set."""
        known = self._opened()
        if known is None or known.door.is_closed:
            raise mismatch(f'{self}: the process set is unknown; call init(), and then '
                           'add_process_set() for a set of your own')
        if known.position is None:
            raise mismatch(f'{self}: rank {known.door.rank} is not in this process set')
        return known

    def bind(self, door, process_set_id):
        ranks = list(range(door.size)) if process_set_id == 0 else self.ranks
        if len(set(ranks)) != len(ranks) or not ranks or not 0 <= ranks[0] <= ranks[-1] < door.size:
            raise mismatch(f'{self}: expected ranks of 0 to {door.size - 1}, each once')
        self.ranks, self.process_set_id = ranks, process_set_id
        self._known = Sequences(door, ranks, process_set_id)

    def remove(self):
        """Drops the operations of the set. Afterwards no rank uses the set."""
        if self._known.position is not None:
            self._known.end()
        self.unbind()

    def unbind(self):
        self._known = self.process_set_id = None

    def _door(self):
        known = self._opened()
        if known is None or known.door.is_closed:
            raise mismatch(f'{self}: the process set is unknown; call init() first')
        return known.door

    def _opened(self):
        """Returns the Sequences. The first call after init() may still have to join the job."""
        if self._known is None and self is global_process_set:
            from . import _door     # imported here, because that module imports this one
            if _door.is_initialized():
                _door.door()
        return self._known

    def __deepcopy__(self, _):
        """Returns this set itself, so that a copy of a module has the same process set."""
        return self

    def __reduce__(self):
        """Pickles only the ranks. Another process has to register the set again."""
        return 'global_process_set' if self is global_process_set else (ProcessSet, (self.ranks,))

    def __repr__(self):
        return f'ProcessSet(id {self.process_set_id}, ranks {self.ranks})'


class Sequences:
    """The Sequences of a set by name, and data of the set: `job`, `members` (ranks, None: all),
    `count`, `path` (prefix of the names of its tensors), `roll` (lists of open operations),
    `dropped` (for each optimizer that no longer exists: its prefixes of names)."""

    def __init__(self, door, ranks, number):
        self.door, self.job, self.count = door, door.job, len(ranks)
        self.members = tuple(ranks) if number else None
        self._ranks = ranks
        self.position = ranks.index(door.rank) if door.rank in ranks else None
        told = '.'.join(map(str, ranks))
        if len(told) > 40:
            told = hashlib.sha256(told.encode()).hexdigest()[:16]
        # A set that is registered again gets other names, because another rank may not yet have
        # removed the former set.
        self.path = f'named/{number}:{told}' if number else 'named/all'
        self._known, self._counts = {}, collections.Counter()
        self.joined = Joined(self)      # exchange of texts with ranks in join()
        self.roll = Roll(self)
        self.optimizers, self.dropped = 0, []

    def rank_of(self, position):
        return self._ranks[position]

    def named(self, kind, name):
        """Returns the Sequence of a call. Raises Mismatch if an operation with that name is
        open."""
        if name is None:
            return self.of(f'{kind}.noname', _UNNAMED_PLANS)
        sequence = self.of(str(name))
        for operation in list(sequence.open):
            if not operation.look():
                raise mismatch(f"{kind} '{name}', rank {self.job.rank}: an operation of that name "
                               'is under way; synchronize() it first, or give this one another '
                               'name')
        return sequence

    def known_as(self, name, is_given):
        """Returns the Sequence of a name from another rank. `is_given`: the script gave the name;
        otherwise the name belongs to calls without a name."""
        return self.of(name, 1 if is_given else _UNNAMED_PLANS)

    def of(self, name, plans_max=1):
        if name not in self._known:
            self._known[name] = Sequence(self, name, plans_max, self.door.timeout_s)
        return self._known[name]

    def all(self):
        return list(self._known.values())

    @contextlib.contextmanager
    def once(self, what):
        """Yields a prefix for the names of a rare operation. At the end of the block these names
        and their tensors are dropped, on all ranks in the same order."""
        self._counts[what] += 1
        prefix = f'{what} {self._counts[what]}/'
        yield prefix
        self.forget(prefix)

    def forget(self, prefix):
        """Drops names with this prefix. No later operation uses these names, and no operation with
        them is open."""
        for name in [name for name in self._known if name.startswith(prefix)]:
            self._known.pop(name).forget_all()

    def end(self):
        self.forget('')
        self.joined.end()
        self.roll.end()

    def hand_over_all(self):
        """Hands the open operations of all sets to the completion thread."""
        for operation in self.door.open():
            operation.hand_over()


global_process_set = ProcessSet()
