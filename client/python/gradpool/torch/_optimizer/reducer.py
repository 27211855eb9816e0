"""Reduction of the gradients of an optimizer's parameters.

    backward()     a hook counts each gradient; a Gate sends its gradients when all of them are
                   counted
    synchronize()  finds new and removed parameters of the optimizer, sends the remaining
                   gradients, waits for all, and copies the results

Parameters that are added together form a layout. All ranks agree on all gradients of a layout in
one exchange. Their names have a common prefix, which is not used again after the layout is empty
(Y91)."""
import types
import warnings
import weakref

import torch

from ..._model.residuals import Residuals
from ...codecs import Codec, Feedback
from ...errors import Mismatch, mismatch
from .._operations.objects import gather_objects
from .._operations.packs import cut
from ..compression import Compression
from .gradients import Member, Pack, Single
from .left import Left
from .prepare import Prepared

_ELEMENTWISE = Compression.none, Compression.fp16, Compression.bf16

_owners = weakref.WeakValueDictionary()     # id of a parameter -> the owner of its gradients


def take_over(owner, parameters):
    """Makes `owner` the owner of these parameters, and removes them from their former owners."""
    others = {}
    for parameter in parameters:
        name = id(parameter)
        former = _owners.get(name)
        member = former and former is not owner and former._members.get(name)
        if member and member.parameter is parameter:
            others.setdefault(former, []).append(member)
        _owners[name] = owner
    for former, members in others.items():
        former.lose(members)


class Gate:
    """Gradients that are sent together: its `units` are sent when `size` parameters are `ready`."""

    def __init__(self, how, prefix, units):
        self.how, self.prefix, self.units = how, prefix, units
        self.ready, self.is_sent = 0, False
        self.count()

    def count(self):
        self.units = [unit for unit in self.units if unit.members]
        self.size = sum(len(unit.members) for unit in self.units)
        for unit in self.units:
            for member in unit.members:
                member.gate = weakref.ref(self)

    def send(self):
        for prepared in self.how.prepared:
            prepared.wait()
        self.how.prepared = []
        for unit in self.units:
            # an earlier attempt has sent the other units, and has failed then
            if unit.handle is None:
                unit.send()
        self.is_sent = True

    def refuse(self, member):
        raise mismatch(f"'{member.name}': backward() ran more than {self.how.passes} times before "
                       'step(); say so in backward_passes_per_step')


def _hook_of(member):
    """Returns the hook that torch calls after each accumulation of the gradient. No Ctrl-C
    interrupts the hook (Y18). The hook refers to no optimizer, so that an optimizer is freed when
    the script drops it."""
    def accumulated(*_):
        gate = member.gate()
        if gate is None:
            return
        how, passes = gate.how, member.passes + 1
        member.passes = passes
        if passes < how.passes:
            return
        if passes > how.passes:
            gate.refuse(member)
        member.gradient = gradient = member.parameter.grad
        member.version = None if gradient is None else gradient._version
        how.is_busy = True
        how.left.add(gradient)
        gate.ready = ready = gate.ready + 1
        if ready == gate.size:
            gate.send()
    return accumulated


class Reducer:
    """Gradients of an optimizer's `parameters`; DistributedOptimizer() describes the options.

    names   [(name, parameter)] of parameters with names
    prefix  a prefix of names that no other optimizer has"""

    def __init__(self, names, parameters, prefix, passes, groups, **how):
        how = self.how = types.SimpleNamespace(**how, prefix=prefix, passes=passes, feedback=None,
                                               altered=[], prepared=[], is_busy=False, left=Left())
        if isinstance(how.compression, Codec):
            how.feedback = Feedback(how.compression)
        self._groups = groups
        self._names = {id(one): (i, name, weakref.ref(one))
                       for i, (name, one) in enumerate(names)}
        self.prefixes = []      # prefixes of layouts that are not empty
        self._layouts = self._unnamed = 0
        self._gates, self._nodes, self._members, self._seen = [], {}, {}, None
        self._elements, self._lost = {}, {}
        self.residuals = Residuals(how.feedback, self._elements, how.process_set.rank(),
                                   lambda: how.is_busy)
        self._take(parameters)
        self._warn_of_whole()

    @property
    def _feedback(self):
        return self.how.feedback

    def _warn_of_whole(self):
        every = list(self._members.values())
        whole = [one.name for one in every if one.parameter.dtype is not torch.float32]
        if self._feedback and whole:
            warnings.warn(f'{self.how.compression!r} is for gradients of float32: {len(whole)} of '
                          f"{len(every)} are sent unchanged, such as '{whole[0]}'", stacklevel=4)

    # ---- parameters that take part ----

    def _take(self, parameters):
        """Adds Members and a layout for new parameters. Returns the Members that take part for the
        last time: the parameter is now frozen, removed, or has another dtype or device."""
        seen = ([id(one) for one in parameters], [one.requires_grad for one in parameters],
                [one.dtype for one in parameters], [one.is_cuda for one in parameters])
        if seen == self._seen:
            return []
        keys = {key[0]: key for key in zip(*seen) if key[1]}
        gone = [member for name, member in self._members.items() if keys.get(name) != member.key]
        for member in gone:
            member.is_gone = True
            del self._members[member.key[0]]
        new = {id(one): one for one in parameters
               if id(one) in keys and id(one) not in self._members}
        for member in gone:
            # the dtype has changed, and the new layout sends the gradient
            if member.key[0] in new:
                member.parameter = member.parameter.detach()
        if new:
            self._own(new)
            self._add([self._member(one, keys[name]) for name, one in new.items()])
        self._seen = seen
        return gone

    def _own(self, new):
        """Removes new parameters from other optimizers. A parameter belongs to the latest
        optimizer, because two optimizers must not reduce one gradient."""
        for name, parameter in new.items():
            lost, known = self._lost.get(name, ('', None))
            if known is not None and known() is parameter:
                raise mismatch(f"the gradient of '{lost}' is reduced for an optimizer that was "
                               'made later. Give a parameter to one DistributedOptimizer, and step '
                               'only that')
        take_over(self, new.values())

    def lose(self, members):
        """Removes parameters that belong to another optimizer now."""
        if self.how.is_busy:
            raise mismatch(f"DistributedOptimizer() of '{members[0].name}', whose gradient is on "
                           'its way for another optimizer: call it after step()')
        for member in members:
            self._lost[member.key[0]] = member.name, weakref.ref(member.parameter)
            del self._members[member.key[0]]
        self._remove(members)
        self._seen = None
        if not self._members:
            self.how.process_set.sequences().dropped.append(self.prefixes[:])
            self.prefixes.clear()

    def _member(self, parameter, key):
        """Returns a Member. A parameter without a name gets a number; ranks add the same parameters
        in the same order."""
        place, name, known = self._names.get(key[0], (None, None, lambda: None))
        if known() is not parameter:
            self._unnamed += 1
            place, name = len(self._names), f'(added {self._unnamed})'
            self._names[key[0]] = place, name, weakref.ref(parameter)
        return Member(name, parameter, key)

    def _add(self, members):
        members.sort(key=lambda member: self._names[member.key[0]][0])
        self._layouts += 1
        is_first = self._layouts == 1
        prefix = self.how.prefix + ('/' if is_first else f'.{self._layouts}/')
        self.prefixes.append(prefix)
        gates = [Gate(self.how, prefix, [self._unit(prefix, one) for one in units])
                 for units in self._cut(members)]
        ranks, texts = self.how.process_set.sequences(), {}
        calls = {unit.name: unit.call(ranks) for gate in gates for unit in gate.units}
        for member in members:
            shape = list(member.parameter.shape)
            texts[prefix + member.name] = f'{self.how.op} of {member.parameter.dtype}{shape}'
            self._elements[member.name] = member.parameter.numel()
            self._members[member.key[0]] = member
        name = prefix + ('(all)' if is_first else '(parameters thawed or added)')
        self.how.prepared.append(Prepared(self.how.process_set, calls, name, texts))
        self._gates += gates
        for member in members:
            self._watch(member)

    def _unit(self, prefix, members):
        others = '' if len(members) == 1 else f' and {len(members) - 1} more'
        kind = Single if len(members) == 1 else Pack
        return kind(self.how, members, f'{prefix}{members[0].name}{others}')

    def _cut(self, members):
        """Returns the members as nested lists: groups that are sent at the same time, made of
        units that are sent as one tensor."""
        groups, others = self._grouped(members)
        return [self._packed(group) for group in groups] + [[unit] for unit in self._packed(others)]

    def _packed(self, members):
        compression = self.how.compression
        if compression not in _ELEMENTWISE and not self._feedback:
            return [[member] for member in members]
        members = members[::-1]     # in the order in which gradients become ready
        is_alone = {one: bool(self._feedback and compression.takes(one.parameter.numel()))
                    for one in members}
        others = [one for one in members if not is_alone[one]]
        packs = cut([member.parameter for member in others])
        return [[one] for one in members if is_alone[one]] + \
            [[others[i] for i in pack] for pack in packs]

    def _grouped(self, members):
        """Returns (members of each group, members without a group)."""
        if self._groups is None:
            return [], members
        if isinstance(self._groups, int):
            size = -(-len(members) // max(self._groups, 1))
            return [members[i:i + size] for i in range(0, len(members), size)], []
        of = {id(one): i for i, group in enumerate(self._groups) for one in group}
        found, others = {}, []
        for member in members:
            group = of.get(member.key[0])
            (others if group is None else found.setdefault(group, [])).append(member)
        return list(found.values()), others

    def _watch(self, member):
        """Stores the autograd node that accumulates the gradient; otherwise torch frees the
        node."""
        parameter = member.parameter
        with torch.enable_grad():       # the script may call step() with gradients disabled
            node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
        self._nodes[member] = node, node.register_hook(_hook_of(member))

    def _unwatch(self, member):
        _, hook = self._nodes.pop(member)
        hook.remove()

    def renew(self):
        """Gets new nodes for parameters with a changed shape, because an old node would refuse
        their gradients."""
        for member in self._members.values():
            if member.parameter.shape != member.shape:
                self._unwatch(member)
                member.shape = member.parameter.shape
                self._elements[member.name] = member.parameter.numel()
                self._watch(member)

    def _remove(self, gone):
        """Removes members that no longer take part."""
        for member in gone:
            self._unwatch(member)
        for gate in {member.gate() for member in gone}:
            for unit in gate.units:
                unit.leave(set(gone))
            gate.count()
        self._gates = [gate for gate in self._gates if gate.units]

    def _forget(self):
        """Drops the names of empty layouts, which have no more rounds on any rank."""
        for prefix in set(self.prefixes) - {gate.prefix for gate in self._gates}:
            self.prefixes.remove(prefix)
            self.how.process_set.sequences().forget(prefix)

    def abandon(self):
        """Ends all hooks. Gradients that are being sent are dropped."""
        for member in list(self._nodes):
            self._unwatch(member)
        for gate in self._gates:
            for unit in gate.units:
                unit.handle = None
        self._members.clear()
        self._gates, self._seen, self.how.is_busy, self.how.prepared = [], None, False, []

    # ---- each step ----

    def set_passes(self, passes):
        self.how.passes = passes
        for member in self._members.values():
            member.passes = 0

    def synchronize(self, parameters):
        """Waits until all gradients are in their places."""
        is_as_left = self.how.left.is_so()
        gone = self._take(parameters)
        self.how.is_busy = True
        for gate in self._gates:
            if not gate.is_sent:
                gate.send()
        units = [unit for gate in self._gates for unit in gate.units]
        try:
            self._land(units)
        finally:
            self._settle(gone)
        if gone:
            self._remove(gone)
            self._forget()
        self._check_altered(is_as_left)

    def _settle(self, gone):
        self.how.is_busy = False
        for gate in self._gates:
            gate.ready, gate.is_sent = 0, False
            for unit in gate.units:
                unit.handle = None
        for member in [*self._members.values(), *gone]:
            member.passes, member.version, member.gradient = 0, None, None
            if member.sparse_dims is not None:
                member.make_sparse()

    def _land(self, units):
        again, flagged = [], []
        for unit in units:
            try:
                if unit.land():
                    flagged.append(unit)
            except Mismatch:
                if not unit.goes_again():
                    raise
                again.append(unit)
        for unit in again:
            unit.send()
        if flagged:
            self._land(self._split(flagged))
        for unit in again:
            unit.land()

    def _split(self, packs):
        """Removes from their packs all gradients that are sparse on some rank; from now on each of
        these gradients is sent alone. Returns their units, which have been sent."""
        mine = [member.name for pack in packs for member in pack.members if member.is_sparse]
        prefix = packs[0].members[0].gate().prefix
        every = set().union(*gather_objects(mine, f'{prefix}(sparse)', self.how.process_set))
        found = []
        for pack in packs:
            leaving = [member for member in pack.members if member.name in every]
            gate = leaving[0].gate()
            pack.leave(set(leaving))
            for member in leaving:
                member.expects_rows()
                found.append(self._unit(gate.prefix, [member]))
                gate.units.append(found[-1])
            gate.count()
        for unit in found:
            unit.send()
        return found

    def _check_altered(self, is_as_left):
        """Raises Mismatch if the script has changed gradients. `is_as_left`: whether their values
        are unchanged."""
        names, self.how.altered = self.how.altered, []
        if names:
            which = (f"the gradient of '{names[0]}' was" if len(names) == 1 else
                     f"gradients of {len(names)} parameters, such as '{names[0]}', were")
        elif not is_as_left:
            which = 'gradients were'
        if names or not is_as_left:
            raise mismatch(f'{which} changed after backward() and before step(), on the way to the '
                           'other ranks. Call optimizer.synchronize() before gradients are '
                           'clipped, unscaled or set, and step() under '
                           'optimizer.skip_synchronize()')

    def is_busy(self):
        return self.how.is_busy
