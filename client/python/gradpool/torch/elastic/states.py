"""States of a training function: the last commit, and the copy from rank 0 to all workers."""
import copy
import zlib

import torch

from ...errors import mismatch
from .._operations.objects import broadcast_object
from .._optimizer.state_transfer import broadcast_optimizer_state, broadcast_parameters
from .loop import HostsUpdatedInterrupt
from .sampler import ElasticSampler


class State:
    """Base class. A subclass has save(), restore() and sync()."""
    _worlds = None
    _callbacks = ()

    def register_reset_callbacks(self, callbacks):
        """Registers functions without arguments, called after each change of rank() or size(), on
        all workers, before sync()."""
        self._callbacks = [*self._callbacks, *callbacks]

    def on_reset(self):
        self.reset()
        for callback in self._callbacks:
            callback()

    def reset(self):
        """Called before the reset callbacks. Subclasses may replace this method."""

    def commit(self):
        """Saves the state, to which all workers return after the loss of a worker. Called by all
        workers after the same step. Raises HostsUpdatedInterrupt if workers join or leave, and
        PeerLost, without saving, if a worker was lost."""
        is_changing = self._check('commit()')
        self.save()
        if is_changing:
            raise HostsUpdatedInterrupt

    def check_host_updates(self):
        """commit() without saving: workers join and leave, and the last commit stays."""
        if self._check('check_host_updates()'):
            raise HostsUpdatedInterrupt

    def _check(self, call):
        if self._worlds is None:
            raise mismatch(f'{call} of a State outside of a function of elastic.run: give the '
                           'State to the function')
        return self._worlds.check(self.record())

    def record(self):
        """Returns a number that all workers must have in common at a commit."""
        return 0

    def enter(self, worlds):
        """Called at the beginning of a function of elastic.run."""
        self._worlds = worlds

    def save(self):
        """Stores a copy of the state in the memory of this process."""
        raise NotImplementedError

    def restore(self):
        """Goes back to the state of the last save()."""
        raise NotImplementedError

    def sync(self):
        """Copies the state of rank 0 to all workers."""
        raise NotImplementedError


class ObjectState(State):
    """A State of Python objects, which are attributes with the names of `values`. They are copied
    with copy.deepcopy(), and sent with pickle."""

    def __init__(self, bcast_object=broadcast_object, get_rank=None, **values):
        self._send, self._saved = bcast_object, {}
        self._names = tuple(values)
        for name, value in values.items():
            setattr(self, name, value)
        self._saved = self._copied()

    def _copied(self):
        return {name: copy.deepcopy(getattr(self, name)) for name in self._names}

    def save(self):
        self._saved = self._copied()

    def restore(self):
        for name, value in copy.deepcopy(self._saved).items():
            setattr(self, name, value)

    def sync(self):
        if self._names:
            mine = {name: getattr(self, name) for name in self._names}
            for name, value in self._send(mine).items():
                setattr(self, name, value)
        self.save()


class _Part:
    """An object with a state_dict(), and the copy of its last save()."""

    def __init__(self, value):
        self.value, self.saved = value, None

    def save(self):
        self.saved = copy.deepcopy(self.value.state_dict())

    def restore(self):
        # a copy: optimizers and schedulers keep and change what they have loaded
        self.value.load_state_dict(copy.deepcopy(self.saved))

    def sync(self, name):
        self.value.load_state_dict(broadcast_object(self.value.state_dict(), 0, f'elastic {name}'))


class _Model(_Part):
    def restore(self):
        super().restore()
        for parameter in self.value.parameters():
            parameter.grad = None       # a part of the mean of a step that nobody has made

    def sync(self, name):
        state = self.value.state_dict()
        if state:
            broadcast_parameters(state, 0)


class _Optimizer(_Part):
    def restore(self):
        super().restore()
        for group in self.value.param_groups:
            for parameter in group['params']:
                parameter.grad = None

    def sync(self, name):
        broadcast_optimizer_state(self.value, 0)


def _part_of(value):
    """Returns a part for an object with a state_dict(), None for others."""
    if isinstance(value, torch.nn.Module):
        return _Model(value)
    if isinstance(value, torch.optim.Optimizer):
        return _Optimizer(value)
    if callable(getattr(value, 'state_dict', None)) and callable(
            getattr(value, 'load_state_dict', None)) and not isinstance(value, type):
        return _Part(value)
    return None


class TorchState(ObjectState):
    """A State of a model, an optimizer and further objects, each an attribute of its name. Objects
    with state_dict() and load_state_dict() (schedulers, ElasticSampler, GradScaler) are changed in
    place; all others are replaced."""

    def __init__(self, model=None, optimizer=None, **values):
        self._parts, plain = {}, {}
        for name, value in {'model': model, 'optimizer': optimizer, **values}.items():
            part = _part_of(value)
            if part is None:
                plain[name] = value
            else:
                self._parts[name] = part
                object.__setattr__(self, name, value)
        super().__init__(**plain)
        self.save()

    def __setattr__(self, name, value):
        if name in self.__dict__.get('_parts', ()):
            part = _part_of(value)
            if part is None:
                raise mismatch(f"TorchState: '{name}' was an object with state_dict(), and is now "
                               f'a {type(value).__name__}; give it another name')
            part.save()
            self._parts[name] = part
        super().__setattr__(name, value)

    def record(self):
        samplers = [(name, part.value.state_dict()) for name, part in self._parts.items()
                    if isinstance(part.value, ElasticSampler)]
        return zlib.crc32(repr(samplers).encode())

    def save(self):
        for part in self._parts.values():
            part.save()
        super().save()

    def restore(self):
        for part in self._parts.values():
            part.restore()
        super().restore()

    def sync(self):
        for name, part in self._parts.items():
            part.sync(name)
        super().sync()
