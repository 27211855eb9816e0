"""Agreement on many operations before the first of them. One exchange and one declaration serve a
whole model, so the service places all tensors together."""
import torch

from ..._group import operations
from ..._tensors.cuda import HERE
from ...errors import Mismatch, mismatch
from .._operations.objects import gather_objects
from .._operations.sequences import declare_all, disagreement, NamedOperation


class _Preparation:
    """The call with which all ranks send the same list of operations."""
    kind, room, neutral, recipe, crossing = 'prepare', None, None, None, HERE

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
        with operations.lock():
            for name, call in fresh.items():
                sequence = self._ranks.of(name)
                sequence.skip()
                sequence.take(call.text, [slots[one] for one in names[name]], call.neutral)


class Prepared:
    """Operations, {name: call}, whose agreement has begun under a separate name.

    texts  {name: text} with which a Mismatch names the first difference; None: texts of the
    calls"""

    def __init__(self, process_set, calls, name, texts=None):
        self._process_set, self._name, self._error = process_set, name, None
        self._texts = texts or {of: call.text for of, call in calls.items()}
        ranks = process_set.sequences()
        self._operation = NamedOperation(ranks.of(name), _Preparation(ranks, calls)).start()

    def wait(self):
        """Raises a Mismatch on all ranks; its text names the first operation that differs."""
        if self._error is not None:
            raise self._error
        try:
            self._operation.wait()
        except Mismatch as error:
            self._error = self._difference() or error
            raise self._error from None

    def _difference(self):
        """Returns the Mismatch. Runs once, because all ranks have to send their descriptions."""
        ranks = self._process_set.sequences()
        every = gather_objects(self._texts, f'{self._name} differs', self._process_set)
        for name in dict.fromkeys(name for texts in every for name in texts):
            brought = [texts.get(name, 'nothing') for texts in every]
            if len(set(brought)) > 1:
                return mismatch(f"'{name}': {disagreement(brought, ranks)}")
        return None
