"""An optimizer whose gradients are those of all ranks.

Each parameter's gradient sets off as soon as backward() has accumulated it; step() waits for all,
then does what the optimizer does. A parameter that had no gradient on this rank sends zeros, as
others may have one."""
import contextlib
import functools
import warnings

import torch

from .._carriers import lent_like
from .._residuals import Residuals
from ..codecs import Codec, Feedback
from ..errors import Mismatch, mismatch
from . import _collectives
from ._calls import ReduceOp, Reduction
from ._coded import CodedReduction
from ._door import door
from ._handles import begin
from ._prepare import Prepared
from ._sparse import is_sparse_to_some
from .compression import Compression
from .process_sets import global_process_set


class _Reducer:
    """The gradients of an optimizer's parameters, on their way."""

    def __init__(self, named, options):
        self.__dict__.update(options)
        self.names = {parameter: name for name, parameter in named if parameter.requires_grad}
        self._handles = {}      # group -> what waits for its gradients and puts them in place
        self._passes = dict.fromkeys(self.names, 0)
        self._group_of = {parameter: tuple(group) for group in self._cut() for parameter in group}
        self._ready, self._sparse = set(), set()
        self._feedback = Feedback(self.compression) if isinstance(self.compression, Codec) else None
        self.residuals = Residuals(
            self._feedback, {name: one.numel() for one, name in self.names.items()},
            self.process_set.rank(), self.is_busy)
        self._warn_of_whole()
        self._prepared = self._prepare()
        self._nodes = []
        for parameter in self.names:
            self._watch(parameter)

    # ---- before the first step ----

    def _warn_of_whole(self):
        whole = [name for one, name in self.names.items() if one.dtype is not torch.float32]
        if self._feedback and whole:
            warnings.warn(f'{self.compression!r} is for gradients of float32: {len(whole)} of '
                          f"{len(self.names)} travel as they are, such as '{whole[0]}'",
                          stacklevel=4)

    def _cut(self):
        """The groups whose gradients set off together."""
        every = list(self.names)
        if self.groups is None:
            return [[parameter] for parameter in every]
        if isinstance(self.groups, int):
            size = -(-len(every) // max(self.groups, 1))
            return [every[i:i + size] for i in range(0, len(every), size)]
        named = [[parameter for parameter in group if parameter in self.names]
                 for group in self.groups]
        inside = {parameter for group in named for parameter in group}
        return [group for group in named if group] + [[parameter] for parameter in every
                                                      if parameter not in inside]

    def name_of(self, group):
        others = '' if len(group) == 1 else f' and {len(group) - 1} more'
        return f'{self.prefix}{self.names[group[0]]}{others}'

    def _prepare(self):
        ranks, calls = self.process_set.sequences(), {}
        for group in dict.fromkeys(self._group_of.values()):
            if self._feedback:
                nothing = {self.names[one]: _zeros(one) for one in group}
                calls[self.name_of(group)] = self._coded(ranks, nothing, is_sent=False)
                continue
            models = [self.compression.compress(_zeros(parameter))[0] for parameter in group]
            calls[self.name_of(group)] = Reduction(ranks, models, models, self.op, self.factors)
        return Prepared(self.process_set, calls, f'{self.prefix}(all)')

    def _coded(self, ranks, tensors, is_sent):
        if self.factors != (1.0, 1.0):
            raise mismatch('gradient_predivide_factor with a codec: leave it out')
        return CodedReduction(ranks, self._feedback, tensors, self.op, is_sent)

    def _watch(self, parameter):
        """The node that accumulates its gradient tells when it has: torch frees it unless held."""
        node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
        node.register_hook(functools.partial(self._accumulated, parameter))
        self._nodes.append(node)

    # ---- each step ----

    def _accumulated(self, parameter, *_):
        if self._group_of[parameter] in self._handles:
            raise mismatch(f"'{self.names[parameter]}': backward() ran more than "
                           f'{self.backward_passes_per_step} times before step(); say so in '
                           'backward_passes_per_step')
        self._passes[parameter] += 1
        if self._passes[parameter] == self.backward_passes_per_step:
            self._ready.add(parameter)
            group = self._group_of[parameter]
            if all(one in self._ready for one in group):
                self._send(group)

    def _send(self, group):
        if self._prepared is not None:
            self._prepared.wait()
            self._prepared = None
        for parameter in group:
            if parameter.grad is None:
                parameter.grad = self._nothing(parameter)
            elif parameter.grad.is_sparse and self.sparse_as_dense:
                parameter.grad = parameter.grad.to_dense()
        if any(parameter.grad.is_sparse for parameter in group):
            self._sparse.update(group)
            self._send_sparse(group)
        elif self._feedback:
            self._send_coded(group)
        else:
            self._send_dense(group)

    def _nothing(self, parameter):
        """The gradient of a parameter that took no part here, of the kind that it has elsewhere."""
        if parameter not in self._sparse:
            return torch.zeros_like(parameter)
        return torch.sparse_coo_tensor(torch.empty(1, 0, dtype=torch.int64),
                                       parameter.new_empty((0, *parameter.shape[1:])),
                                       parameter.shape)

    def _send_coded(self, group):
        ranks = self.process_set.sequences()
        call = self._coded(ranks, {self.names[one]: one.grad for one in group}, is_sent=True)
        self._handles[group] = begin(ranks, call, self.name_of(group), lambda: None)

    def _send_dense(self, group):
        """What is lent lands beside its gradient, whose memory is that from then on: nothing is
        copied, and the next gradient is added up in memory that can be lent (Y20)."""
        ranks = self.process_set.sequences()
        gradients = [parameter.grad for parameter in group]
        travel, known = zip(*map(self.compression.compress, gradients))
        landing = [lent_like(ranks.job, one) for one in travel]
        outputs = [one if place is None else place for one, place in zip(travel, landing)]

        def put():
            for gradient, sent, output, of in zip(gradients, travel, outputs, known):
                if sent is not gradient:
                    gradient.copy_(self.compression.decompress(output, of))
                elif output is not gradient:
                    gradient.data = output
        call = Reduction(ranks, travel, outputs, self.op, self.factors)
        self._handles[group] = begin(ranks, call, self.name_of(group), put)

    def _send_sparse(self, group):
        if len(group) > 1:
            raise mismatch(f"'{self.name_of(group)}': sparse gradients in a group; leave their "
                           'parameters out of it, or say sparse_as_dense')
        parameter, = group
        if parameter.grad._nnz() == 0:      # after zero_() its rows are none, of all dimensions
            parameter.grad = self._nothing(parameter)
        compression = Compression.none if self._feedback else self.compression
        handle = _collectives.sparse_allreduce_async(parameter.grad, self.name_of(group), self.op,
                                                     self.process_set, *self.factors, compression)
        self._handles[group] = handle.then(functools.partial(setattr, parameter, 'grad'))

    def synchronize(self):
        """Waits for all gradients; they are in their places then."""
        for group in dict.fromkeys(self._group_of.values()):
            if group not in self._handles:
                self._send(group)
        again, handles, self._handles = [], self._handles, {}
        self._ready.clear()
        self._passes = dict.fromkeys(self.names, 0)
        for group, handle in handles.items():
            try:
                handle.wait()
            except Mismatch:
                if not is_sparse_to_some(handle.brought()):
                    raise
                again.append(group)
        self._send_again(again)

    def _send_again(self, groups):
        """What is sparse on some ranks and was not on others, as all have been told: who has sent
        zeros has no rows. Others bring what they have brought, and then it is an error."""
        for group in groups:
            for parameter in group:
                if not parameter.grad.is_sparse and not parameter.grad.any():
                    self._sparse.add(parameter)
                    parameter.grad = self._nothing(parameter)
            self._send(group)
        handles, self._handles = self._handles, {}
        for handle in handles.values():
            handle.wait()

    def loss_of_all(self, loss):
        """The sum of all ranks' where gradients are summed, else the mean. None stays None."""
        if loss is None:
            return None
        op = ReduceOp.Sum if self.op is ReduceOp.Sum else ReduceOp.Average
        value = loss.detach() if torch.is_tensor(loss) else torch.tensor(float(loss))
        return _collectives.allreduce_async(value, op=op, name=f'{self.prefix}(loss)',
                                            process_set=self.process_set).wait()

    def is_busy(self):
        return bool(self._handles)


def _zeros(parameter):
    """What ranks agree on a parameter's gradient by; its values go nowhere."""
    return torch.zeros(parameter.shape, dtype=parameter.dtype)


class _Distributed:
    """What is put before the class of the optimizer."""

    def synchronize(self):
        """Waits for all gradients: before something is done to them, such as clipping. Then step()
        is called under skip_synchronize()."""
        self._reducer.synchronize()
        self._is_synchronized = True

    @property
    def residuals(self):
        """What a codec has not sent yet: state_dict() and load_state_dict(), between steps. It is
        not in the optimizer's state_dict(), as each rank has its own."""
        return self._reducer.residuals

    @contextlib.contextmanager
    def skip_synchronize(self):
        """step() in this block does not wait: synchronize() has been called."""
        self._skips = True
        try:
            yield
        finally:
            self._skips = False

    def step(self, closure=None):
        """Waits for all gradients, then steps. With a closure it waits in each evaluation of it,
        for those of its backward(), and the loss is that of all ranks, too: an optimizer that
        decides by it, as LBFGS does, decides the same on all."""
        if closure is not None and not self._skips:
            given = closure

            def closure():
                loss = given()
                self.synchronize()
                return self._reducer.loss_of_all(loss)
        elif not self._skips:
            if self._is_synchronized:
                warnings.warn('step() after synchronize() waits for the gradients once more; call '
                              'it under optimizer.skip_synchronize()', stacklevel=2)
            self.synchronize()
        self._is_synchronized = False
        return super().step(closure)

    def zero_grad(self, *arguments, **options):
        """As the optimizer's. Mismatch: gradients are on their way."""
        if self._reducer.is_busy():
            raise mismatch('zero_grad() after backward() and before step() or synchronize(): '
                           'gradients are on their way')
        return super().zero_grad(*arguments, **options)


def _named(optimizer, named_parameters):
    """[(name, parameter)] of all that the optimizer has."""
    every = [parameter for group in optimizer.param_groups for parameter in group['params']]
    if named_parameters is None:
        return [(f'parameter.{i}', parameter) for i, parameter in enumerate(every)]
    named = list(named_parameters)
    names = [name for name, _ in named]
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise mismatch(f'named_parameters has some names twice: {", ".join(twice)}')
    known = {parameter for _, parameter in named}
    missing = sum(parameter not in known for parameter in every)
    if missing:
        raise mismatch(f'named_parameters lacks {missing} of the {len(every)} parameters of the '
                       'optimizer; pass model.named_parameters()')
    mine = set(every)
    return [(name, parameter) for name, parameter in named if parameter in mine]


def _factors(op, predivide):
    """(op, (before, after)): with a factor the sum is taken of what was divided by it already, and
    then divided by the rest."""
    if predivide == 1.0:
        return op, (1.0, 1.0)
    if op is not ReduceOp.Average:
        raise mismatch(f'gradient_predivide_factor {predivide} with {op}: it divides an Average in '
                       'two')
    return ReduceOp.Average, (1.0 / predivide, float(predivide))


def DistributedOptimizer(optimizer, named_parameters=None, compression=Compression.none,
                         backward_passes_per_step=1, op=ReduceOp.Average,
                         gradient_predivide_factor=1.0, num_groups=0, groups=None,
                         sparse_as_dense=False, process_set=global_process_set):
    """The optimizer, with the gradients of all ranks: of its class, with its parameters and state.

    named_parameters          model.named_parameters(); None: they are counted
    compression               what gradients are turned into before they travel: of Compression
    backward_passes_per_step  how many backward() add up before gradients set off
    op                        Average, Sum, Min, Max or Product
    gradient_predivide_factor what an Average is divided by before it is summed; by the rest after
    num_groups                as `groups`, by its former name
    groups                    how many groups of gradients set off together, or [[parameter]]
    sparse_as_dense           sparse gradients are made dense, instead of gathered"""
    if not isinstance(backward_passes_per_step, int) or backward_passes_per_step < 1:
        raise mismatch(f'backward_passes_per_step is {backward_passes_per_step!r}, expected 1 or '
                       'more')
    named = _named(optimizer, named_parameters)
    op, factors = _factors(op, gradient_predivide_factor)
    door().optimizers += 1
    number = door().optimizers
    kind = type(optimizer)
    made = object.__new__(type(kind.__name__, (_Distributed, kind), {}))
    made.__dict__.update(optimizer.__dict__)
    made.__dict__.pop('step', None)     # of the former one, where a scheduler counts its steps
    made._skips = made._is_synchronized = False
    made._reducer = _Reducer(named, {
        'compression': compression, 'backward_passes_per_step': backward_passes_per_step, 'op': op,
        'factors': factors, 'groups': groups if groups is not None else num_groups or None,
        'sparse_as_dense': sparse_as_dense, 'process_set': process_set,
        'prefix': 'gradient/' if number == 1 else f'gradient{number}/'})
    return made
