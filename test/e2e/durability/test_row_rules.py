"""The row rules compared with PyTorch's optimizers on sparse gradients: some rows of an embedding
have a gradient in each step, the others keep their bits.

SparseAdam has the same operations in the same order, so its bits are ours. In the other rules
PyTorch may fuse a product with a sum, so there the error against float64 is at most twice
PyTorch's own."""
import os
import pathlib
import subprocess
import unittest

import numpy

import tap

REPLAY = pathlib.Path(os.environ['GRADPOOL_BUILD']) / 'test' / 'e2e' / 'row_replay'
STEPS, ROWS, DIM, CHOSEN = 60, 50, 19, 12
RATE, EPSILON = 0.01, 1e-8

# Name here: the optimizer in PyTorch, and its settings.
RULES = {
    'sgd': ('SGD', {}),
    'adagrad': ('Adagrad', {'eps': EPSILON}),
    'adam': ('SparseAdam', {'betas': (0.9, 0.999), 'eps': EPSILON}),
}


def make_training():
    """(first values, rows with a gradient[step], gradients[step]) in float32."""
    random = numpy.random.default_rng(20261129)
    first = random.normal(size=(ROWS, DIM)).astype(numpy.float32)
    rows = [numpy.sort(random.choice(ROWS - 1, CHOSEN, replace=False)) for _ in range(STEPS)]
    gradients = random.normal(size=(STEPS, CHOSEN, DIM)).astype(numpy.float32)
    return first, rows, gradients


def by_torch(rule, training, dtype):
    """`dtype`: float64 or float32."""
    import torch
    first, rows, gradients = training
    kind, options = RULES[rule]
    dtype = getattr(torch, dtype)
    values = torch.nn.Parameter(torch.tensor(first, dtype=dtype))
    optimizer = getattr(torch.optim, kind)([values], lr=RATE, **options)
    for chosen, gradient in zip(rows, gradients):
        values.grad = torch.sparse_coo_tensor(torch.tensor(chosen)[None],
                                              torch.tensor(gradient, dtype=dtype), first.shape)
        optimizer.step()
    return values.detach().numpy()


def by_gradpool(rule, training, kernels):
    first, rows, gradients = training
    beta1, beta2 = RULES[rule][1].get('betas', (0, 0))
    words = [kernels, rule, STEPS, ROWS, DIM, RATE, 0, beta1, beta2, EPSILON]
    order = ' '.join(map(str, words)) + '\n'
    steps = b''.join(numpy.uint32(CHOSEN).tobytes() + chosen.astype(numpy.uint32).tobytes()
                     + gradient.tobytes() for chosen, gradient in zip(rows, gradients))
    answer = subprocess.run([REPLAY], input=order.encode() + first.tobytes() + steps,
                            capture_output=True, check=True)
    return numpy.frombuffer(answer.stdout, numpy.float32).reshape(first.shape)


class RowRules(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.training = make_training()

    def error_of(self, values, reference):
        return abs(values.astype(numpy.float64) - reference).max()

    def check(self, rule):
        first, rows, _ = self.training
        ours = by_gradpool(rule, self.training, 'best')
        theirs = by_torch(rule, self.training, 'float32')
        reference = by_torch(rule, self.training, 'float64')
        same = (ours.view(numpy.uint32) == theirs.view(numpy.uint32)).mean()
        print(f'# {rule}: {same:.1%} of the values have the same bits; error '
              f'{self.error_of(ours, reference):.3g}, of PyTorch '
              f'{self.error_of(theirs, reference):.3g}')
        self.assertGreater(self.error_of(first, reference), 1e-2)
        self.assertLessEqual(self.error_of(ours, reference), 2 * self.error_of(theirs, reference))
        self.assertEqual(ours.tobytes(), by_gradpool(rule, self.training, 'c').tobytes())
        self.assertEqual(ours[-1].tobytes(), first[-1].tobytes())   # no step has a gradient of it
        return ours, theirs

    def test_sgd_is_as_near_to_float64_as_pytorch_is(self):
        self.check('sgd')

    def test_adagrad_is_as_near_to_float64_as_pytorch_is(self):
        self.check('adagrad')

    def test_adam_has_the_bits_of_sparse_adam(self):
        ours, theirs = self.check('adam')
        self.assertEqual(ours.tobytes(), theirs.tobytes())


if __name__ == '__main__':
    tap.main()
