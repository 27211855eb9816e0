"""Operations on Python objects, which are sent as their pickled bytes."""
import ctypes
import pickle

import torch

from ..process_sets import global_process_set
from .calls import Broadcast, Gathering
from .handles import begin


def _bytes_of(thing):
    return torch.frombuffer(bytearray(pickle.dumps(thing)), dtype=torch.uint8)


def _thing_of(raw):
    return pickle.loads(ctypes.string_at(raw.data_ptr(), raw.numel()))


def gather_async(thing, name, process_set):
    """Returns the Handle of gather_objects()."""
    ranks = process_set.sequences()
    call = Gathering(ranks, [_bytes_of(thing)])
    call.neutral = call.recipe = None   # a rank in join() has no object
    return begin(ranks, call, name, lambda: [_thing_of(raw) for raw, in call.found])


def gather_objects(thing, name, process_set):
    return gather_async(thing, name, process_set).wait()


def allgather_object(obj, name=None, process_set=global_process_set):
    """Returns [object of each rank], in rank order."""
    return gather_objects(obj, name or 'allgather_object', process_set)


def broadcast_object(obj, root_rank=0, name=None, process_set=global_process_set):
    """Returns the root's object on every rank. Objects of other ranks are ignored."""
    name, ranks = name or 'broadcast_object', process_set.sequences()
    is_root = ranks.job.rank == root_rank
    raw = _bytes_of(obj) if is_root else torch.empty(0, dtype=torch.uint8)
    size = torch.tensor([raw.numel()])
    _send(ranks, size, root_rank, f'{name}.size')
    # The room is rounded up to a power of two. Objects of similar size then need no new agreement.
    room = torch.zeros(1 << int(size).bit_length(), dtype=torch.uint8)
    if is_root:
        room[:raw.numel()] = raw
    _send(ranks, room, root_rank, f'{name}.values')
    return obj if is_root else _thing_of(room[:int(size)])


def _send(ranks, tensor, root, name):
    begin(ranks, Broadcast(ranks, tensor, root), name, lambda: tensor).wait()
