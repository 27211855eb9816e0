"""Compares the update rules with PyTorch over 100 steps of a real training. The recorded gradients
come from two workers of an MLP on the digits of scikit-learn. The training is replayed with these
gradients by PyTorch in float64 (the reference), by PyTorch in float32, and by svc/reduce. The error
of svc/reduce may be at most twice PyTorch's error.

Tests of jobs replay the same training. Importing torch and sklearn takes three seconds of CPU time.
Therefore only the first test program records, and later ones read its file."""
import contextlib
import hashlib
import os
import pathlib
import subprocess
import tempfile
import unittest

import numpy

import tap

REPLAY = pathlib.Path(os.environ['GRADPOOL_BUILD']) / 'test' / 'e2e' / 'update_replay'
STEPS, WORKERS, SHARD = 100, 2, 64
RATE, DECAY = 0.01, 0.01

# key: name of the rule; values: PyTorch's optimizer, and settings other than the defaults below
RULES = {
    'sgd': ('SGD', {}),
    'momentum': ('SGD', {'momentum': 0.9, 'dampening': 0.1}),
    'nesterov': ('SGD', {'momentum': 0.9, 'nesterov': True}),
    'adam': ('Adam', {'betas': (0.9, 0.999), 'eps': 1e-8}),
    'adamw': ('AdamW', {'betas': (0.9, 0.999), 'eps': 1e-8}),
}


def flat(tensors):
    return numpy.concatenate([tensor.detach().numpy().ravel() for tensor in tensors])


def record():
    """Trains in float32. Returns (first parameters, gradients[step][worker], losses)."""
    import sklearn.datasets
    import torch
    torch.manual_seed(20261121)
    digits = sklearn.datasets.load_digits()
    images = torch.tensor(digits.data / 16, dtype=torch.float32)
    labels = torch.tensor(digits.target)
    model = torch.nn.Sequential(torch.nn.Linear(64, 48), torch.nn.ReLU(), torch.nn.Linear(48, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    first, gradients, losses = flat(model.parameters()), [], []
    for _ in range(STEPS):
        chosen = torch.randint(len(images), (WORKERS, SHARD))
        shares = []
        for shard in chosen:
            loss = torch.nn.functional.cross_entropy(model(images[shard]), labels[shard])
            shares.append(torch.autograd.grad(loss, list(model.parameters())))
        gradients.append([flat(share) for share in shares])
        for parameter, *parts in zip(model.parameters(), *shares):
            parameter.grad = sum(parts) / WORKERS
        optimizer.step()
        losses.append(loss.item())
    return first, numpy.array(gradients, numpy.float32), losses


def recorded():
    """Returns the recorded training. Reads it from the file if a program with the same version of
    this module has written it."""
    version = hashlib.sha256(pathlib.Path(__file__).read_bytes()).hexdigest()[:16]
    path = REPLAY.parent / f'training-{version}.npz'
    if not path.exists():
        with tempfile.NamedTemporaryFile(dir=path.parent) as file:
            numpy.savez(file, *record())
            file.flush()
            with contextlib.suppress(FileExistsError):  # another program wrote the file first
                os.link(file.name, path)
    with numpy.load(path) as made:
        return [made[f'arr_{number}'] for number in range(3)]


def by_torch(rule, first, gradients, dtype):
    """Runs the training with PyTorch in float64 or float32."""
    import torch
    kind, options = RULES[rule]
    dtype = getattr(torch, dtype)
    parameter = torch.nn.Parameter(torch.tensor(first, dtype=dtype))
    optimizer = getattr(torch.optim, kind)([parameter], lr=RATE, weight_decay=DECAY, **options)
    for of_workers in torch.tensor(gradients).to(dtype):
        parameter.grad = of_workers.sum(0) / WORKERS
        optimizer.step()
    return parameter.detach().double().numpy()


def by_gradpool(rule, first, gradients, kernels):
    options = RULES[rule][1]
    words = [kernels, rule, len(gradients), WORKERS, first.size, RATE, DECAY,
             options.get('momentum', 0), options.get('dampening', 0),
             *options.get('betas', (0, 0)), options.get('eps', 0)]
    order = ' '.join(map(str, words)) + '\n'
    answer = subprocess.run([REPLAY], input=order.encode() + first.tobytes() + gradients.tobytes(),
                            capture_output=True, check=True)
    return numpy.frombuffer(answer.stdout, numpy.float32).astype(numpy.float64)


class UpdateRules(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.first, cls.gradients, cls.losses = recorded()

    def test_the_recorded_training_learns(self):
        self.assertLess(numpy.mean(self.losses[-10:]), 0.5 * self.losses[0])

    def check(self, rule):
        reference = by_torch(rule, self.first, self.gradients, 'float64')
        theirs = abs(by_torch(rule, self.first, self.gradients, 'float32') - reference)
        ours = abs(by_gradpool(rule, self.first, self.gradients, 'best') - reference)
        self.assertGreater(abs(reference - self.first).max(), 1e-3)
        print(f'# {rule}: error of gradpool {ours.max():.3g}, root mean square '
              f'{numpy.sqrt((ours ** 2).mean()):.3g}; of PyTorch {theirs.max():.3g}, '
              f'{numpy.sqrt((theirs ** 2).mean()):.3g}')
        self.assertLessEqual(ours.max(), 2 * theirs.max())
        self.assertLessEqual((ours ** 2).mean(), 4 * (theirs ** 2).mean())
        plain = by_gradpool(rule, self.first, self.gradients, 'c')
        self.assertEqual(plain.tobytes(), by_gradpool(rule, self.first, self.gradients,
                                                      'best').tobytes())


def _case(rule):
    def test(self):
        self.check(rule)
    return test


for name in RULES:
    setattr(UpdateRules, f'test_{name}_is_as_near_to_float64_as_pytorch_is', _case(name))

if __name__ == '__main__':
    tap.main()
