"""Agreeing on many operations at once, before the first of them: one exchange of words and one
declaration for a whole model, which is then placed as a whole."""
import torch

from .. import _operations
from ._sequences import declare_all, NamedOperation


class _Preparation:
    """The call by which all ranks say the same list of operations. Where they differ it does
    nothing: each operation then says its own words, and who differs is told about which."""
    kind, room, neutral = 'prepare', None, None

    def __init__(self, ranks, calls):
        self._ranks, self._calls = ranks, calls
        listed = [f'{name}: {call.text}' for name, call in calls.items()
                  if not ranks.of(name).plans]
        self.text = 'prepare ' + '; '.join(listed)

    def sizes(self, _):
        return [(torch.int32, 0)]

    def parts(self, plan):
        nothing = torch.empty(0, dtype=torch.int32)
        return [(plan.slots[0], lambda of: self._ranks.job.push_pull(of, nothing, nothing, 'sum'))]

    def finish(self, _):
        fresh = {name: call for name, call in self._calls.items() if not self._ranks.of(name).plans}
        sizes, names = {}, {}
        for name, call in fresh.items():
            wanted = call.sizes(0)
            names[name] = self._ranks.of(name).next_names(len(wanted))
            sizes.update(zip(names[name], wanted))
        slots = dict(zip(sizes, declare_all(self._ranks, sizes)))
        with _operations.lock():
            for name, call in fresh.items():
                sequence = self._ranks.of(name)
                sequence.skip()
                sequence.take(call.text, [slots[one] for one in names[name]], call.neutral)


def prepare(ranks, calls, name):
    """Begins to agree on {name: call}; returns the operation, to be waited for."""
    return NamedOperation(ranks.of(name), _Preparation(ranks, calls)).start()
