"""Checks arguments of a process group's operations: reductions, lists of one tensor, output
tensors."""
import functools

import torch
from torch.distributed import ReduceOp

from .._process.interrupts import put_off
from .._tensors.carriers import check_place
from ..errors import mismatch

_ARITHMETIC = ((ReduceOp.SUM, 'sum'), (ReduceOp.AVG, 'mean'), (ReduceOp.MIN, 'min'),
               (ReduceOp.MAX, 'max'), (ReduceOp.PRODUCT, 'product'))
_BITWISE = ((ReduceOp.BAND, torch.bitwise_and), (ReduceOp.BOR, torch.bitwise_or),
            (ReduceOp.BXOR, torch.bitwise_xor))


def _of(table, operation):
    return next((value for key, value in table if operation == key), None)


def fold_of(operation):
    """Returns the bitwise function of a reduction, or None for another reduction."""
    return _of(_BITWISE, operation)


def _name_of(operation):
    """Returns torch's name of a reduction object."""
    names = getattr(ReduceOp, 'RedOpType', ReduceOp).__members__
    return next((name for name in names if operation == getattr(ReduceOp, name)), repr(operation))


def arithmetic(operation, tensor):
    """Returns the service's name of a reduction. Raises Mismatch if the tensor's dtype does not
    allow the reduction."""
    name = _of(_ARITHMETIC, operation)
    if name is None:
        offered = ', '.join(_name_of(one) for one, _ in _ARITHMETIC)
        raise mismatch(f'the reduction {_name_of(operation)} of {tensor.dtype} is not offered '
                       f'here; there are {offered}')
    if name == 'mean' and not (tensor.is_floating_point() or tensor.is_complex()):
        raise mismatch(f'{tensor.dtype} has no mean; use ReduceOp.SUM')
    if name not in ('sum', 'mean') and tensor.is_complex():
        raise mismatch(f'{tensor.dtype} has no {name}')
    return name


def only(values):
    if len(values) != 1:
        raise mismatch(f'{len(values)} tensors, expected one: a process has one rank in a group')
    return values[0]


def some(tensors, what):
    if not tensors:
        raise mismatch(f'{what} of no tensors')
    return tensors


def check_places(tensors):
    """Checks that results can be written to a tensor, or to nested lists of tensors."""
    if isinstance(tensors, (list, tuple)):
        for one in tensors:
            check_places(one)
    else:
        check_place(tensors)


def puts(call):
    """Decorates an operation whose first argument receives the results. The wrapper checks this
    argument before the operation declares or sends anything. All ranks make this check, so that no
    rank waits for a rank with a wrong argument."""
    @put_off
    @functools.wraps(call)
    def checked(self, places, *rest, **options):
        check_places(places)
        return call(self, places, *rest, **options)
    return checked
