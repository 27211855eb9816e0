"""States that lanes store for tensors with update rules, and checksums of memory. A state is one
flat float32 tensor or array: parameters, then moments. Job has no methods for these calls of the
library."""
import ctypes

from .binding import lib, number, SAME_STEPS, State, U32_MAX
from .memory import Loan

MOMENTS = {'sgd': 0, 'momentum': 1, 'nesterov': 1, 'adam': 2, 'adamw': 2}


def read(job, places, rule_of):
    """Reads states for this rank alone, between two of its iterations: fills {Tensor: arrays}.
    Returns {Tensor: number of updates since its parameters were set or restored}."""
    loan, states = Loan(), (State * len(places))()
    try:
        for state, (tensor, arrays) in zip(states, places.items()):
            tensor = job._known(tensor)
            state.tensor = tensor.handle
            state.arrays = _address(loan, tensor, arrays, rule_of(tensor))
    except BaseException:
        loan.end()
        raise
    job._wait(lib.gp_job_read, states, len(states), finish=loan.end)
    return {tensor: state.steps for tensor, state in zip(places, states)}


def save(job, tensor, rule, arrays=None):
    """Starts a round of all ranks that copies the lane's state to `arrays`; returns a Request. If
    `arrays` is None, this rank receives no state."""
    tensor, loan = job._known(tensor), Loan()
    try:
        place = None if arrays is None else _address(loan, tensor, arrays, rule)
    except BaseException:
        loan.end()
        raise
    return job._start([tensor], loan, lambda _, request: lib.gp_save(tensor.handle, place, request))


def restore(job, tensor, rule, arrays=None, parameters=None, root=0, steps=None):
    """Starts a round of all ranks that sets the lane's state to rank `root`'s `arrays`; returns a
    Request. On other ranks `parameters` gets the new parameters. `steps` None: the count of steps
    continues."""
    tensor, loan = job._known(tensor), Loan()
    steps, root = SAME_STEPS if steps is None else steps, number(root, 'root', U32_MAX)
    try:
        given = None if arrays is None else _address(loan, tensor, arrays, rule)
        taken = None if parameters is None else loan.address(
            parameters, tensor.elements, f"parameters of '{tensor.name}'", tensor.dtype)
    except BaseException:
        loan.end()
        raise
    return job._start([tensor], loan, lambda _, request: lib.gp_restore(
        tensor.handle, given, taken, root, steps, request))


def _address(loan, tensor, arrays, rule):
    return loan.address(arrays, tensor.elements * (1 + MOMENTS[rule]),
                        f"state of '{tensor.name}'", tensor.dtype)


class Sum:
    """Checksum of memory areas with fixed lengths. Every change of one word changes the sum."""

    def __init__(self, lengths):
        count = len(lengths)
        self._bytes, self._places = (ctypes.c_size_t * count)(*lengths), []
        self._array = (ctypes.c_void_p * count)()

    def over(self, places):
        if places != self._places:
            self._array[:], self._places = places, places
        return lib.gp_checksum(self._array, self._bytes, len(places))
