"""An optimizer that steps with the gradients of all ranks.

Each gradient is sent when backward() has accumulated it; small gradients are sent together. step()
waits for all gradients and then calls the optimizer's step(). For a parameter without a gradient
this rank sends zeros, because another rank may have a gradient.

The script's optimizer object itself becomes the distributed one: its class is replaced. Schedulers,
scalers and other users of the optimizer keep the same object (Y90)."""
import contextlib
import functools
import warnings
import weakref

import torch

from ...codecs import Codec
from ...errors import mismatch
from .._door import door, is_initialized, known, Place
from .._operations import collectives
from .._operations.calls import ReduceOp
from .._operations.objects import gather_objects
from ..compression import Compression
from ..process_sets import global_process_set
from .reducer import Reducer


class Distributed:
    """Base class that is put before the optimizer's class.

    _kind        the optimizer's class
    _reducer     its Reducer; None for a copy, which has other parameters
    _given_step  attribute `step` of the object, which replaced step() of its class; or None"""
    _kind = _reducer = _given_step = None
    _has_backup = False     # whether rounds close before their slowest ranks arrive
    _skips = _is_synchronized = False

    def _gradients(self):
        if isinstance(self._reducer, Unbound):
            door()      # without elastic.run the first step joins the job
        if self._reducer is None:
            raise mismatch(f'a copy of a distributed {self._kind.__name__}: its gradients are of '
                           'this rank alone. Pass it to DistributedOptimizer(), with the '
                           'parameters that it has, or load its state_dict() elsewhere')
        return self._reducer

    def __reduce_ex__(self, _):
        return _copy_of, (self._kind,), {
            key: value for key, value in self.__getstate__().items() if key not in _OURS}

    def synchronize(self):
        """Waits for all gradients, so that the script can then change them, for example by
        clipping. The script then calls step() in a block of skip_synchronize()."""
        self._gradients().synchronize(_parameters_of(self))
        self._is_synchronized = True

    @property
    def residuals(self):
        """Values that a codec has not sent yet, with state_dict() and load_state_dict(), between
        steps. The optimizer's state_dict() does not contain them, because each rank has other
        values."""
        return self._gradients().residuals

    def set_backward_passes_per_step(self, passes):
        """Sets the number of backward() calls whose gradients are added before they are sent."""
        _check_passes(passes)
        self._check_idle('set_backward_passes_per_step()')
        self._gradients().set_passes(passes)

    def unbind(self):
        """Ends the sending of gradients to the ranks of a Door that closes."""
        if isinstance(self._reducer, Reducer):
            self._reducer.abandon()
            self._reducer = Unbound(self._reducer.how.passes)

    def _check_idle(self, call):
        if self._reducer is not None and self._reducer.is_busy():
            raise mismatch(f'{call} after backward() and before step() or synchronize(): gradients '
                           'are in flight. Call optimizer.synchronize() before, or '
                           'requires_grad_(False) on parameters that need no gradient')

    @contextlib.contextmanager
    def skip_synchronize(self):
        """In this block step() does not wait, because the script has called synchronize()."""
        self._skips = True
        try:
            yield
        finally:
            self._skips = False

    def step(self, closure=None):
        """Waits for all gradients, then steps. A closure is called as usual; each call waits for
        the gradients of its backward(), and returns the loss of all ranks. So an optimizer that
        decides by the loss, such as LBFGS, decides in the same way on all ranks."""
        self._gradients()
        if self._skips:
            self._check_idle('step() under skip_synchronize()')
        elif closure is None:
            self._synchronize_once()
        else:
            given = closure

            def closure():
                loss = given()
                self.synchronize()
                return self._loss_of_all(loss)
        self._is_synchronized = False
        return self._step_alone(closure)

    def _step_alone(self, closure=None):
        """Steps with the gradients in .grad."""
        return super().step(closure) if self._given_step is None else self._given_step(closure)

    def _synchronize_once(self):
        """Waits for gradients, except for those that synchronize() has already replaced: a second
        Sum would add the gradients of all ranks twice."""
        if self._is_synchronized and not self._reducer.is_busy():
            warnings.warn('step() after synchronize() does not wait for gradients: call it under '
                          'optimizer.skip_synchronize()', stacklevel=3)
        else:
            self.synchronize()

    def _loss_of_all(self, loss):
        """Returns the loss of all ranks: the sum of the losses if gradients are summed, otherwise
        their mean. A loss of None stays None."""
        if loss is None:
            return None
        how = self._gradients().how
        op = ReduceOp.Sum if how.op is ReduceOp.Sum else ReduceOp.Average
        value = loss.detach() if torch.is_tensor(loss) else torch.tensor(float(loss))
        return collectives.allreduce_async(value, op=op, name=f'{how.prefix}/(loss)',
                                            process_set=how.process_set).wait()

    def zero_grad(self, *arguments, **options):
        """Calls the optimizer's method. Raises Mismatch while gradients are being sent."""
        self._check_idle('zero_grad()')
        self._is_synchronized = False
        if self._reducer is not None:
            self._reducer.renew()
        return super().zero_grad(*arguments, **options)


class Unbound:
    """Stands in for the Reducer of an optimizer without ranks: before the function of elastic.run,
    and after a change of workers until the optimizer is made again."""

    def __init__(self, passes):
        self.passes = passes

    def is_busy(self):
        return False

    def renew(self):
        pass

    def set_passes(self, passes):
        self.passes = passes

    def __getattr__(self, name):
        # the first call outside of elastic.run fixes the number of workers, and gives a Reducer
        raise mismatch(f'{name} of a distributed optimizer that was made in an earlier call of the '
                       'function of elastic.run. Make it before this function, or again in each '
                       'call')


_OURS = '_reducer', '_skips', '_is_synchronized', '_given_step', 'step'


@functools.cache
def _distributed(kind, base=Distributed):
    """Returns the class of distributed optimizers for an optimizer's class."""
    return type(kind.__name__, (base, kind), {'_kind': kind})


def _copy_of(kind):
    """Creates the object for a copied or loaded optimizer, which has the state but no ranks."""
    return object.__new__(_distributed(kind))


def become_distributed(optimizer, base=Distributed):
    """Replaces step(). A scheduler that was created earlier has put a `step` attribute on the
    object, to count calls. The new step() still calls this attribute, and has the same
    attributes."""
    optimizer.__class__ = _distributed(optimizer._kind if isinstance(optimizer, Distributed)
                                       else type(optimizer), base)
    given = optimizer.__dict__.get('step')
    if given is not None:
        me = weakref.ref(optimizer)

        @functools.wraps(given)
        def step(*arguments, **options):
            self = me()
            return type(self).step(self, *arguments, **options)
        optimizer.step, optimizer._given_step = step, given


def _parameters_of(optimizer):
    return [parameter for group in optimizer.param_groups for parameter in group['params']]


def _check_passes(passes):
    if not isinstance(passes, int) or passes < 1:
        raise mismatch(f'backward_passes_per_step is {passes!r}, expected 1 or more')


def _check_names(named):
    for one in named:
        if not isinstance(one, tuple) or len(one) != 2 or not isinstance(one[0], str):
            raise mismatch(f'named_parameters has a {type(one).__name__}, expected (name, '
                           'parameter); pass model.named_parameters()')
    names = [name for name, _ in named]
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise mismatch(f'named_parameters has some names twice: {", ".join(twice)}')


def _named(optimizer, named_parameters):
    """Returns [(name, parameter)] of all parameters, also of those that may be added later."""
    every = _parameters_of(optimizer)
    if named_parameters is None:
        return [(f'parameter.{i}', parameter) for i, parameter in enumerate(every)]
    named = list(named_parameters)
    _check_names(named)
    known = {parameter for _, parameter in named}
    missing = sum(parameter not in known for parameter in every)
    if missing:
        raise mismatch(f'named_parameters lacks {missing} of the {len(every)} parameters of the '
                       'optimizer; pass model.named_parameters()')
    return named


def _factors(op, predivide):
    """Returns (op, (before, after)). Values are divided by gradient_predivide_factor before the
    sum. The sum is then divided by the quotient of the number of ranks and this factor."""
    if predivide == 1.0:
        return op, (1.0, 1.0)
    if op is not ReduceOp.Average:
        raise mismatch(f'gradient_predivide_factor {predivide} with {op}: it divides an Average in '
                       'two')
    return ReduceOp.Average, (1.0 / predivide, float(predivide))


def _next_prefix(ranks, process_set):
    """Returns the prefix for the names of another optimizer. If all ranks have dropped an
    optimizer, all ranks drop its names, because join() needs the same names on all ranks (Y93)."""
    ranks.optimizers += 1
    if ranks.optimizers == 1:
        return 'gradient'
    mine = {prefix for prefixes in ranks.dropped for prefix in prefixes}
    for prefix in set.intersection(*gather_objects(mine, '(dropped)', process_set)):
        ranks.forget(prefix)
        for prefixes in ranks.dropped:
            prefixes[:] = [one for one in prefixes if one != prefix]
    ranks.dropped[:] = filter(None, ranks.dropped)
    return f'gradient{ranks.optimizers}'


def DistributedOptimizer(optimizer, named_parameters=None, compression=Compression.none,
                         backward_passes_per_step=1, op=ReduceOp.Average,
                         gradient_predivide_factor=1.0, num_groups=0, groups=None,
                         sparse_as_dense=False, process_set=global_process_set, backup=None,
                         step=None):
    """Returns the same optimizer, which steps with the gradients of all ranks from now on.

    named_parameters          model.named_parameters(); None: parameters are numbered
    compression               conversion of gradients for sending: a value of Compression
    backward_passes_per_step  number of backward() calls whose gradients are added before sending
    op                        Average, Sum, Min, Max or Product
    gradient_predivide_factor an Average divides by this factor before the sum, and by the remaining
                              factor after the sum
    num_groups                former name of `groups`
    groups                    number of groups of gradients that are sent together, or [[parameter]]
    sparse_as_dense           sparse gradients are converted to dense ones, instead of gathered
    backup                    "static:3": each round closes at its third gradient; also "auto" or a
                              gradpool.Backup. Loop over optimizer.batches(). None: rounds have
                              all ranks
    step                      with backup, a function that steps once a round, such as clipping,
                              optimizer.step() and scheduler.step(); None: optimizer.step()"""
    if not hasattr(optimizer, 'param_groups'):
        raise mismatch(f'DistributedOptimizer() takes an optimizer of torch, not a '
                       f'{type(optimizer).__name__}')
    _check_passes(backward_passes_per_step)
    named = _named(optimizer, named_parameters)
    op, factors = _factors(op, gradient_predivide_factor)
    if backup is not None or step is not None:
        from .with_backup import distribute     # imported here, because that module imports this
        door().refuse_elastic('DistributedOptimizer(backup=)', 'a round that lacks ranks cannot be '
                              'restored; leave backup out')
        return distribute(optimizer, named, backup, step, backward_passes_per_step, {
            'compression': compression is not Compression.none, 'op': op is not ReduceOp.Average,
            'gradient_predivide_factor': factors != (1.0, 1.0), 'sparse_as_dense': sparse_as_dense,
            'groups': groups is not None or num_groups > 0,
            'process_set': process_set is not global_process_set})
    if isinstance(optimizer, Distributed) and optimizer._has_backup:
        raise mismatch('DistributedOptimizer() of an optimizer that has backup workers already. '
                       'Give the optimizer of torch')
    make = functools.partial(
        _bind, named=named, groups=groups if groups is not None else num_groups or None,
        passes=backward_passes_per_step, compression=compression, op=op, factors=factors,
        sparse_as_dense=sparse_as_dense, process_set=process_set)
    place = known() if is_initialized() else None
    if process_set is not global_process_set or not isinstance(place, Place):
        make(optimizer)
        return optimizer
    _distribute(optimizer)
    optimizer._reducer = Unbound(backward_passes_per_step)
    place.optimizers.append((weakref.ref(optimizer), make))
    return optimizer


def _distribute(optimizer):
    """Replaces the class of an optimizer that is not distributed yet."""
    if not isinstance(optimizer, Distributed):
        become_distributed(optimizer)


def _bind(optimizer, named, groups, passes, process_set, **how):
    """Gives the optimizer a Reducer for the present ranks."""
    ranks = process_set.sequences()
    if isinstance(how['compression'], Codec):
        ranks.door.refuse_elastic('DistributedOptimizer(compression=) with a codec', 'values that '
                                  'are not sent yet would be lost; use Compression.fp16, or leave '
                                  'compression out')
    if isinstance(optimizer, Distributed) and isinstance(optimizer._reducer, Unbound):
        passes = optimizer._reducer.passes
    reducer = Reducer(named, _parameters_of(optimizer), _next_prefix(ranks, process_set), passes,
                      groups, process_set=process_set, **how)
    weakref.finalize(reducer, ranks.dropped.append, reducer.prefixes).atexit = False
    _distribute(optimizer)
    optimizer._reducer = reducer
    ranks.door.optimizers.add(optimizer)
