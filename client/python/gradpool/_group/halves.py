"""Keeps Python objects of finished operations alive for torch (Y10).

torch's C++ code holds only the C++ half of a Work and later calls a method of its Python half. If
the Python half was freed, torch waits for ever. This module therefore holds each finished operation
until torch has called its method. torch does not report whether a Work is still in use. So this
module holds the last RECENT operations with their results. Older operations, and operations with
several results, are held without their results, as long as the script references one of the
results."""
import collections
import weakref

RECENT = 64

_recent = collections.deque()
_tied = {}      # id of a result -> (weak reference to it, the operation)


def hold(operation):
    """Holds a finished operation until torch has queried the operation."""
    _recent.append(operation)
    while len(_recent) > RECENT:
        tie(_recent.popleft())


def tie(operation):
    """Holds a finished operation without its results, while one of the results is alive."""
    for tensor in operation.drop_results():
        key = id(tensor)
        _tied[key] = weakref.ref(tensor, lambda _, key=key: _tied.pop(key, None)), operation
