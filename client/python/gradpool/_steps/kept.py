"""An optimizer's moments, which lanes store: copied from the optimizer to the lanes, and returned
in the form of torch.optim.

The lanes get the values of rank 0 in a round of all ranks. One rank alone can read the values,
because scripts call state_dict() on rank 0 alone (Y80, Y81)."""
import collections
import errno
import time

import torch

from .._native.states import MOMENTS, read, restore, save
from .._tensors.carriers import lent
from ..client import default_timeout_ms
from ..errors import GradpoolError, mismatch, Mismatch

KEYS = {'sgd': (), 'momentum': ('momentum_buffer',), 'nesterov': ('momentum_buffer',),
        'adam': ('exp_avg', 'exp_avg_sq'), 'adamw': ('exp_avg', 'exp_avg_sq')}
_CHUNK_BYTES = 64 << 20     # largest number of bytes of states that are transferred at a time
_LENT_FROM = 16384  # shorter states, in elements, are copied and not lent
_AGAIN_S = 0.05
_NOTES_NONE = torch.__version__ < (2, 4)    # before torch 2.4, SGD without momentum has a state
_PASSING = errno.EBUSY, errno.EAGAIN, errno.ECONNREFUSED, errno.ECONNRESET


class Kept:
    """The state of an optimizer on the service.

    rule_of      a parameter's rule
    place        the Place of the model in the job; the optimizer refers to it, too
    has_stepped  whether lanes have done steps, which makes the optimizer's own moments outdated"""

    def __init__(self, optimizer, rule_of):
        self._optimizer, self._rule_of = optimizer, rule_of
        self._empty, self._is_loaded = optimizer.state, _has_values(optimizer.state)
        self._job, self.has_stepped = None, False
        self._tensors = {}      # parameter -> its tensor
        self._aside = {}        # state of frozen parameters, which have no tensor
        # the Kept of an earlier attach() of the same optimizer
        self.place, self._former = None, vars(optimizer).get('_kept')
        if self._former is not None:
            self._former.check_job()
            self._aside = self._former._aside

    @property
    def is_loaded(self):
        """Returns whether the optimizer has a state that lanes lack. A script may have replaced or
        cleared the state; then all moments are zero."""
        state = self._optimizer.state
        return self._is_loaded or state is not self._empty or getattr(state, 'is_cleared', False)

    def check_job(self):
        """Raises the same error on all ranks if the moments on the lanes cannot be read any
        more."""
        if self.has_stepped and not self.is_loaded and self._has_moments():
            self._check_readable()

    def _has_moments(self):
        return any(MOMENTS[self._rule_of(one)] for one in self._tensors)

    def _check_readable(self):
        if self._is_lost():
            raise self._lost()
        if self._job.backup is not None and self._has_moments():
            raise mismatch(f'{self._job} has backup workers, and lanes do not send the moments of '
                           'such a job. Save the state_dict() of the model alone; the moments of '
                           'the next optimizer begin with zeros')

    def _is_lost(self):
        return self.place is not None and self.place.is_over()

    def check_state(self):
        """Raises Mismatch if the script has written single moments."""
        if not self.is_loaded and _has_values(self._optimizer.state):
            raise mismatch('the script has written to optimizer.state, but lanes store the '
                           'moments: change the result of state_dict() instead, and load it '
                           'with load_state_dict()')

    def _lost(self):
        return GradpoolError(errno.EBADF, f'{self._job}: the attachment has been closed, and lanes '
                             'have dropped the moments of its optimizer: call state_dict() '
                             'before close(), then load_state_dict()')

    def begin(self, job, tensors, share):
        """Called on all ranks. Lanes get rank 0's parameters, and its moments if there are some.
        Returns False if rank 0 has no moments: the caller then broadcasts the parameters.

        tensors  {parameter: its tensor}
        share    function: replaces int64 numbers, one for each parameter, by those of rank 0"""
        self._job, self._tensors, self._share = job, tensors, share
        if self._former is not None and job.rank == 0:
            self._optimizer.state = self._empty = self._former.state()
            self._is_loaded = _has_values(self._optimizer.state)
        counts = self._agree()
        if counts is not None:
            for chunk in _chunks(list(tensors)):
                self._restore(chunk, counts, {one: self._room(one) for one in chunk})
        self._settle()
        if self._former is not None and self._former.place is not None:
            self._former.place.drop()
        self._optimizer._kept, self._former = self, None
        return counts is not None

    def take_over(self, first):
        """Called on all ranks before a step. Lanes get the parameters of rank 0's model and, if the
        script has loaded a state, the moments of rank 0's optimizer.

        first  parameters of the first push of the step. A rank without a change pushes these
               parameters while this rank transfers them, and the service reports the mismatch"""
        ours = {id(one) for one in first}
        chunks = [list(first), *_chunks([one for one in self._tensors if id(one) not in ours])]
        counts = None
        for number, chunk in enumerate(chunks):
            arrays = {one: self._room(one) for one in chunk}
            _wait(save(self._job, self._tensors[one], self._rule_of(one), arrays[one])
                  for one in chunk)
            if number == 0:
                counts = self._agree()
            self._restore(chunk, counts, arrays)
        self._settle()

    def _settle(self):
        self.has_stepped |= self._is_loaded
        if self.is_loaded:
            self._aside = {one: of_one for one, of_one in self._optimizer.state.items()
                           if one not in self._tensors}
        self._optimizer.state = self._empty = _Empty(dict)
        self._is_loaded = False

    def note_step(self):
        self.has_stepped = True

    def note_restored(self):
        """Called after a restore: the lanes have the state of the snapshot, which replaces a loaded
        state."""
        self._settle()
        self.has_stepped = True

    def _room(self, parameter):
        """Returns memory for the state on rank 0, and None on other ranks."""
        if self._job.rank != 0:
            return None
        elements = parameter.numel() * (1 + MOMENTS[self._rule_of(parameter)])
        room = lent(self._job, elements, torch.float32) if elements > _LENT_FROM else None
        return torch.empty(elements) if room is None else room

    def _agree(self):
        """Returns {parameter: number of steps of its moments}, or None if rank 0 has loaded no
        state."""
        counts = torch.full((len(self._tensors),), -1, dtype=torch.int64)
        if self._job.rank == 0 and self.is_loaded:
            counts = torch.tensor([self._steps_of(one) for one in self._tensors])
        self._share(counts)
        if counts.numel() and int(counts[0]) < 0:
            return None
        self.has_stepped = True
        return dict(zip(self._tensors, counts.tolist()))

    def _restore(self, chunk, counts, arrays):
        requests, landed = [], []
        for one in chunk:
            here = one.detach()
            if self._job.rank == 0:
                self._fill(one, arrays[one], counts is not None)
                place = None
            else:
                place = torch.empty(here.shape) if not here.is_cpu else here
                landed.append((here, place))
            requests.append(restore(self._job, self._tensors[one], self._rule_of(one),
                                    arrays[one], place, 0, counts and counts[one]))
        _wait(requests)
        for here, place in landed:
            if place is not here:
                here.copy_(place)

    # ---- in the form of torch.optim ----

    def _steps_of(self, parameter):
        state, keys = self._optimizer.state.get(parameter) or {}, KEYS[self._rule_of(parameter)]
        if 'exp_avg' in keys:
            return int(state.get('step', 0))
        return int(any(state.get(key) is not None for key in keys))

    def _fill(self, parameter, arrays, is_loaded):
        """Copies a parameter, and its moments if a state was loaded."""
        elements = parameter.numel()
        arrays[:elements].copy_(parameter.detach().reshape(-1))
        if not is_loaded:
            return
        arrays[elements:].zero_()
        steps, state = self._steps_of(parameter), self._optimizer.state.get(parameter) or {}
        for i, key in enumerate(KEYS[self._rule_of(parameter)] if steps else ()):
            value = state.get(key)
            if value is None or value.numel() != elements:
                raise mismatch(f"the optimizer's state has no '{key}' of {elements} elements for a "
                               'parameter that has made steps: load a whole state_dict()')
            arrays[(i + 1) * elements:][:elements].copy_(value.detach().reshape(-1))

    def state(self):
        """Returns optimizer.state as if the optimizer had done the steps itself."""
        if self.is_loaded or not self.has_stepped:
            return collections.defaultdict(dict, self._optimizer.state)
        self._check_readable()
        found = collections.defaultdict(dict, self._aside)
        places = {self._tensors[one]: torch.empty(one.numel() * (1 + MOMENTS[self._rule_of(one)]))
                  for one in self._tensors if MOMENTS[self._rule_of(one)]}
        rules = {self._tensors[one]: self._rule_of(one) for one in self._tensors}
        steps = self._read(places, rules)
        for one, tensor in self._tensors.items():
            if tensor not in places:
                if _NOTES_NONE:
                    found[one] = {'momentum_buffer': None}
            elif steps[tensor]:
                found[one] = _unpacked(one, rules[tensor], steps[tensor], places.pop(tensor))
        return found

    def _read(self, places, rules):
        """Reads the states. Repeats the read while other ranks read, while pieces of the job move,
        and while the coordinator is not reachable."""
        until_s = time.monotonic() + default_timeout_ms() / 1e3
        while places:
            try:
                return read(self._job, places, rules.get)
            except GradpoolError as error:
                if error.errno in (errno.EBADF, errno.ECANCELED):
                    raise self._lost() from error
                if error.errno not in _PASSING or time.monotonic() > until_s:
                    raise
            time.sleep(_AGAIN_S)
        return {}

    # ---- the optimizer's methods ----

    def replace_methods(self, check):
        """Replaces methods of the optimizer. state_dict(), pickling and copying then contain the
        moments, and the next step uses a state from load_state_dict(). check() raises an earlier
        failure."""
        optimizer, kind = self._optimizer, type(self._optimizer)

        def state_dict(*arguments, **options):
            check()
            empty, optimizer.state = optimizer.state, self.state()
            try:
                return kind.state_dict(optimizer, *arguments, **options)
            finally:
                optimizer.state = empty

        def load_state_dict(*arguments, **options):
            loaded = kind.load_state_dict(optimizer, *arguments, **options)
            self._is_loaded = True
            return loaded

        def add_param_group(group):
            raise mismatch('add_param_group() of an optimizer whose steps the service does: '
                           'give it all groups before attach(), or the new parameters an optimizer '
                           'and a model of their own')

        def get_state():
            check()
            return {**kind.__getstate__(optimizer), 'state': self.state()}
        optimizer.state_dict, optimizer.load_state_dict = state_dict, load_state_dict
        optimizer.add_param_group, optimizer.__getstate__ = add_param_group, get_state


class _Empty(collections.defaultdict):
    """The optimizer's state while lanes store the moments."""
    is_cleared = False

    def clear(self):
        super().clear()
        self.is_cleared = True


def _has_values(state):
    return any(value is not None for of_one in state.values()
               for value in of_one.values())    # moments of SGD without momentum are None


def _unpacked(parameter, rule, steps, arrays):
    """Copies the tensors, because torch.save() writes the whole storage of a tensor."""
    elements, found = parameter.numel(), {}
    if 'exp_avg' in KEYS[rule]:
        found['step'] = torch.tensor(float(steps))
    for i, key in enumerate(KEYS[rule]):
        moment = arrays[(i + 1) * elements:][:elements].clone().view(parameter.shape)
        found[key] = moment.to(parameter.device)
    return found


def _chunks(parameters):
    """Yields lists of parameters of at most _CHUNK_BYTES bytes, or with one parameter."""
    chunk, size = [], 0
    for one in parameters:
        if chunk and size + 12 * one.numel() > _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append(one)
        size += 12 * one.numel()
    if chunk:
        yield chunk


def _wait(requests):
    requests = list(requests)
    try:
        for request in requests:
            request.wait()
    except Mismatch as error:
        for request in requests:
            request.mute()
        raise in_words(error) from error


def in_words(error):
    """Adds a probable cause to the error of ranks that make different calls: one rank does a step
    while another rank saves."""
    text = str(error)
    if ' pushes ' in text and 'save' in text and 'update' in text:
        return mismatch(f'{text}: on some ranks the script has written into parameters, or has '
                        'loaded them or the optimizer, since the last step. Do so on every rank, '
                        'before the same step')
    return error
