"""Data, models and batches of the two jobs, equal to the last bit in worker and reference.

All values follow from the kind of job, the rank and the step; nothing depends on time, on other
ranks or on the service."""
import dataclasses
import hashlib
import typing

import numpy
import torch
import torch.nn.functional

SEED = 20240229


def make_cnn():
    """(n, 1, 8, 8) -> (n, 10); 38,282 parameters in 8 tensors."""
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10))


def make_mlp():
    """(n, 30) -> (n, 2); 4,130 parameters in 6 tensors."""
    nn = torch.nn
    return nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(),
                         nn.Linear(32, 2))


@dataclasses.dataclass(frozen=True)
class Training:
    """How a kind of job is trained; `batch`: samples a rank and step."""
    make_model: typing.Callable
    batch: int
    learning_rate: float


TRAININGS = {'digits': Training(make_cnn, 32, 0.05), 'cancer': Training(make_mlp, 16, 0.02)}


class Data:
    """One kind's data, read from the file that datasets.prepare() went to."""

    def __init__(self, path, kind):
        arrays = numpy.load(path)
        self._x = torch.from_numpy(arrays[f'{kind}_x'])
        self._y = torch.from_numpy(arrays[f'{kind}_y'])
        self._trained = len(self._y) - int(arrays[f'{kind}_held'])
        self._batch = TRAININGS[kind].batch

    def batches(self, rank, workers):
        """Endless (x, y) of this rank's shard: every workers-th sample, newly ordered each pass."""
        shard = torch.arange(rank, self._trained, workers)
        generator = torch.Generator().manual_seed(SEED + rank)
        while True:
            order = shard[torch.randperm(len(shard), generator=generator)]
            for part in order.split(self._batch):
                if len(part) == self._batch:
                    yield self._x[part], self._y[part]

    def accuracy(self, model):
        """Share of the held-out samples that the model gets right."""
        with torch.no_grad():
            guesses = model(self._x[self._trained:]).argmax(1)
        return (guesses == self._y[self._trained:]).double().mean().item()


def start(kind):
    """(model, optimizer) as every rank of that kind starts; one torch thread from here on."""
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    training = TRAININGS[kind]
    model = training.make_model()
    return model, torch.optim.SGD(model.parameters(), training.learning_rate, momentum=0.9)


def backward(model, batch):
    """Leaves the gradients of one batch in the model's parameters."""
    x, y = batch
    torch.nn.functional.cross_entropy(model(x), y).backward()


def flatten(model):
    """All parameters in order, one float32 array."""
    return numpy.concatenate([p.detach().numpy().ravel() for p in model.parameters()])


def digest(model):
    """A hash of all parameters: equal when every bit is."""
    return hashlib.sha256(flatten(model).tobytes()).hexdigest()
