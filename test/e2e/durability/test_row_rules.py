"""Compares the row rules with PyTorch's optimizers on sparse gradients. In each step some rows of
an embedding have a gradient. The bits of all other rows must not change.

SparseAdam uses the same operations in the same order, so its results must be equal to the bit. For
the other rules PyTorch may fuse a product with a sum; the error of our result, compared with
float64, may be at most twice PyTorch's error."""
import os
import pathlib
import subprocess
import unittest

import numpy

import tap

REPLAY = pathlib.Path(os.environ['GRADPOOL_BUILD']) / 'test' / 'e2e' / 'row_replay'
STEPS, ROWS, DIM, CHOSEN = 60, 50, 19, 12
RATE, EPSILON = 0.01, 1e-8

# key: name of the rule; values: PyTorch's optimizer and its settings
RULES = {
    'sgd': ('SGD', {}),
    'adagrad': ('Adagrad', {'eps': EPSILON}),
    'adam': ('SparseAdam', {'betas': (0.9, 0.999), 'eps': EPSILON}),
}


def make_training():
    """Returns first values, rows with a gradient in each step, and gradients of each step, in
    float32."""
    random = numpy.random.default_rng(20261129)
    first = random.normal(size=(ROWS, DIM)).astype(numpy.float32)
    rows = [numpy.sort(random.choice(ROWS - 1, CHOSEN, replace=False)) for _ in range(STEPS)]
    gradients = random.normal(size=(STEPS, CHOSEN, DIM)).astype(numpy.float32)
    return first, rows, gradients


def by_torch(rule, training, dtype):
    """Runs the training with PyTorch in float64 or float32."""
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
        # this row has no gradient in any step
        self.assertEqual(ours[-1].tobytes(), first[-1].tobytes())
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
