"""The same start everywhere: one rank's parameters and optimizer state for all."""
import torch

from ..errors import mismatch
from ._calls import Broadcast
from ._handles import begin
from ._objects import broadcast_object
from ._prepare import Prepared
from .process_sets import global_process_set


def broadcast_parameters(params, root_rank, process_set=global_process_set):
    """The root's values, into each tensor of a state_dict(), or of named_parameters()."""
    items = params.items() if isinstance(params, dict) else params
    tensors = {name: tensor for name, tensor in items if tensor is not None}
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise mismatch(f"broadcast_parameters: '{name}' is a {type(tensor).__name__}, expected "
                           'a tensor; broadcast_object() takes others')
    _broadcast_all('parameters', tensors, root_rank, process_set)


def _broadcast_all(what, tensors, root_rank, process_set):
    """{name: tensor}, each in its place."""
    ranks = process_set.sequences()
    with ranks.once(what) as prefix:
        calls = {f'{prefix}{name}': Broadcast(ranks, tensor, root_rank)
                 for name, tensor in tensors.items()}
        Prepared(process_set, calls, f'{prefix}(all)').wait()
        handles = [begin(ranks, call, name, lambda: None) for name, call in calls.items()]
        for handle in handles:
            handle.wait()


class _Place:
    """Stands for a tensor in what is pickled."""

    def __init__(self, number, tensor):
        self.number, self.shape, self.dtype = number, tuple(tensor.shape), tensor.dtype


def _map(thing, change, kind):
    """A copy of nested dicts, lists and tuples in which each `kind` was changed."""
    if isinstance(thing, kind):
        return change(thing)
    if isinstance(thing, dict):
        return {key: _map(value, change, kind) for key, value in thing.items()}
    if isinstance(thing, (list, tuple)) and not hasattr(thing, '_fields'):
        return type(thing)(_map(value, change, kind) for value in thing)
    return thing


def broadcast_optimizer_state(optimizer, root_rank, process_set=global_process_set):
    """The root's state and settings (rates, momenta, step counts), into the optimizer of each rank;
    one that has not stepped yet gets them, too."""
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
    optimizer.load_state_dict(state)
