"""Copies one rank's parameters and optimizer state to all ranks, so that all ranks start with the
same values."""
import collections.abc

import torch

from ..._tensors.carriers import told
from ...errors import mismatch
from .._operations.calls import Broadcast
from .._operations.handles import begin
from .._operations.objects import broadcast_object
from .._operations.packs import cut, PackedBroadcast
from ..process_sets import global_process_set
from .prepare import Prepared


def broadcast_parameters(params, root_rank, process_set=global_process_set):
    """Copies the root's values into each tensor of a state_dict(), of named_parameters(), or of
    parameters(), which are numbered."""
    if not isinstance(params, collections.abc.Iterable):
        raise mismatch(f'broadcast_parameters() takes model.state_dict() or '
                       f'model.named_parameters(), not a {type(params).__name__}')
    items = params.items() if isinstance(params, dict) else enumerate_named(params)
    tensors = {name: tensor for name, tensor in items if tensor is not None}
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise mismatch(f"broadcast_parameters: '{name}' is a {type(tensor).__name__}, expected "
                           'a tensor; broadcast_object() takes others')
    _broadcast_all('parameters', tensors, root_rank, process_set)


def enumerate_named(params):
    """Yields (name, tensor) for each item. An item may be such a pair already."""
    for i, one in enumerate(params):
        yield one if isinstance(one, tuple) else (f'parameter.{i}', one)


def _broadcast_all(what, tensors, root_rank, process_set):
    """Broadcasts {name: tensor}, each in place."""
    ranks, listed = process_set.sequences(), list(tensors.values())
    texts = {name: f'broadcast from rank {root_rank} of {told(one)}'
             for name, one in tensors.items()}
    with ranks.once(what) as prefix:
        calls = {}
        for positions in cut(listed):
            some = [listed[i] for i in positions]
            calls[f'{prefix}{len(calls)}'] = Broadcast(ranks, some[0], root_rank) \
                if len(some) == 1 else PackedBroadcast(ranks, some, root_rank)
        Prepared(process_set, calls, f'{prefix}(all)', texts).wait()
        handles = [begin(ranks, call, name, lambda: None) for name, call in calls.items()]
        for handle in handles:
            handle.wait()


class _Place:
    """A placeholder for a tensor in pickled objects."""

    def __init__(self, number, tensor):
        self.number, self.shape, self.dtype = number, tuple(tensor.shape), tensor.dtype


def _map(thing, change, kind):
    """Returns a copy of nested dicts, lists and tuples, with each object of class `kind` replaced
    by change() of it."""
    if isinstance(thing, kind):
        return change(thing)
    if isinstance(thing, dict):
        return {key: _map(value, change, kind) for key, value in thing.items()}
    if isinstance(thing, (list, tuple)) and not hasattr(thing, '_fields'):
        return type(thing)(_map(value, change, kind) for value in thing)
    return thing


def broadcast_optimizer_state(optimizer, root_rank, process_set=global_process_set):
    """Copies the root's state and settings (rates, momenta, step counts) to the optimizer of each
    rank, also to an optimizer without a step."""
    tensors = []

    def place(tensor):
        tensors.append(tensor)
        return _Place(len(tensors) - 1, tensor)
    is_root = process_set.sequences().job.rank == root_rank
    state = _map(optimizer.state_dict(), place, torch.Tensor) if is_root else None
    state = broadcast_object(state, root_rank, 'optimizer state', process_set)
    received = {}

    def fill(of):
        given = tensors[of.number].clone() if is_root else torch.empty(of.shape, dtype=of.dtype)
        return received.setdefault(of.number, given)
    state = _map(state, fill, _Place)
    _broadcast_all('optimizer state', received, root_rank, process_set)
    _load_in_place(optimizer, state)


def _load_in_place(optimizer, state):
    """Loads the state in place, so that other references to a group or to the state see the new
    values."""
    groups, states = optimizer.param_groups, optimizer.state
    optimizer.load_state_dict(state)
    for group, loaded in zip(groups, optimizer.param_groups):
        group.clear()
        group.update(loaded)
    loaded = dict(optimizer.state)
    states.clear()
    states.update(loaded)
    optimizer.param_groups, optimizer.state = groups, states
