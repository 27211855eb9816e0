"""Data, models and batches of the two jobs, equal to the last bit in worker and reference.

All values are functions of the kind of job, the rank and the step. No value depends on time, on
other ranks or on the service."""
import dataclasses
import hashlib
import typing

import numpy
import torch
import torch.nn.functional

SEED = 20240229


def make_cnn():
    """Returns the model (n, 1, 8, 8) -> (n, 10), with 38,282 parameters in 8 tensors."""
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10))


def make_mlp():
    """Returns the model (n, 30) -> (n, 2), with 4,130 parameters in 6 tensors."""
    nn = torch.nn
    return nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(),
                         nn.Linear(32, 2))


@dataclasses.dataclass(frozen=True)
class Training:
    """The training of one kind of job; `batch`: samples of each rank in a step."""
    make_model: typing.Callable
    batch: int
    learning_rate: float


TRAININGS = {'digits': Training(make_cnn, 32, 0.05), 'cancer': Training(make_mlp, 16, 0.02)}


class Data:
    """The data of one kind, read from the file of datasets.prepare(). `trained`: the number of
    training samples."""

    def __init__(self, path, kind):
        arrays = numpy.load(path)
        self._x = torch.from_numpy(arrays[f'{kind}_x'])
        self._y = torch.from_numpy(arrays[f'{kind}_y'])
        self.trained = len(self._y) - int(arrays[f'{kind}_held'])
        self._batch = TRAININGS[kind].batch

    def batches(self, rank, workers):
        """Yields (x, y) of this rank's samples forever: every workers-th sample, in a new order in
        each pass."""
        shard = torch.arange(rank, self.trained, workers)
        generator = torch.Generator().manual_seed(SEED + rank)
        while True:
            order = shard[torch.randperm(len(shard), generator=generator)]
            for part in order.split(self._batch):
                if len(part) == self._batch:
                    yield self._x[part], self._y[part]

    def at(self, indices):
        """Returns (x, y) of these training samples."""
        return self._x[indices], self._y[indices]

    def accuracy(self, model):
        """Returns the fraction of validation samples that the model classifies correctly."""
        with torch.no_grad():
            guesses = model(self._x[self.trained:]).argmax(1)
        return (guesses == self._y[self.trained:]).double().mean().item()


def start(kind):
    """Returns (model, optimizer) for the start, equal on every rank. Limits torch to one thread."""
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    training = TRAININGS[kind]
    model = training.make_model()
    return model, torch.optim.SGD(model.parameters(), training.learning_rate, momentum=0.9)


def backward(model, batch):
    """Computes the gradients of one batch and stores them in the model's parameters."""
    x, y = batch
    torch.nn.functional.cross_entropy(model(x), y).backward()


def flatten(model):
    """Returns all parameters in order as one float32 array."""
    return numpy.concatenate([p.detach().numpy().ravel() for p in model.parameters()])


def digest(model):
    """Returns a hash of all parameters. Models with the same bits have the same hash."""
    return hashlib.sha256(flatten(model).tobytes()).hexdigest()
