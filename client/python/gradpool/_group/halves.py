"""Python halves of Works that only torch's own code holds (Y10).

torch asks a Work of ours for its end in C++, but does not hold the Python object that answers, and
without one waits for ever. So operations that are over stay here until they have been asked. Nobody
counts who holds a Work, but whoever does has its results: the last RECENT operations are held with
their results, older ones and those of several results without, as long as one of these lives."""
import collections
import weakref

RECENT = 64

_recent = collections.deque()
_tied = {}      # id of a result -> (weak reference to it, the operation)


def hold(operation):
    """Keeps an operation that is over until torch has requested its end."""
    _recent.append(operation)
    while len(_recent) > RECENT:
        tie(_recent.popleft())


def tie(operation):
    """Keeps an operation that is over while one of its results lives, without the results."""
    for tensor in operation.drop_results():
        key = id(tensor)
        _tied[key] = weakref.ref(tensor, lambda _, key=key: _tied.pop(key, None)), operation
