"""Batch normalization over the batches of all ranks.

In training each rank sends three figures for each channel of a layer: the number of values, their
mean, and the sum of squared distances from the mean. All ranks combine these figures in rank order,
in float64, so all ranks normalize with the same bits. The backward pass sends one sum over the
whole batch."""
import torch

from ..errors import mismatch
from ._operations.calls import Gathering, ReduceOp, Reduction
from ._operations.handles import begin
from .process_sets import global_process_set

# Name of these operations. Their order is counted separately from that of other calls without a
# name, because all ranks reach the layers in the same order.
_KIND = 'SyncBatchNorm'


def _exact(given):
    return given.float() if given.dtype in (torch.float16, torch.bfloat16) else given


def _dims(given):
    """Returns the numbers of all dimensions except that of the channels."""
    return [i for i in range(given.dim()) if i != 1]


def _spread(of_channels, given):
    """Reshapes values of channels for arithmetic with a batch."""
    return of_channels.to(given).view(1, -1, *[1] * (given.dim() - 2))


def _moments(given, ranks):
    """Returns (number of values of a channel, means, variances) over the batches of all ranks."""
    count, channels = given.numel() // max(given.shape[1], 1), given.shape[1]
    mine = given.new_zeros(1, 1 + 2 * channels, dtype=torch.float64)
    if count:
        variance, mean = torch.var_mean(_exact(given.detach()), _dims(given), unbiased=False)
        mine[0] = torch.cat([mean.new_tensor([count]), mean, variance * count])
    call = Gathering(ranks, [mine])
    call.kind = _KIND
    every, = begin(ranks, call, None, call.whole).wait()
    counts, means, squares = every[:, :1], every[:, 1:1 + channels], every[:, 1 + channels:]
    total = int(counts.sum())
    if total < 2:
        raise mismatch(f'{_KIND}: {total} values of a channel on all ranks together, expected 2 or '
                       'more in training; give a larger batch, or call eval()')
    mean = (means * counts).sum(0) / total
    return total, mean, (squares + counts * (means - mean).square()).sum(0) / total


def _summed(values, ranks):
    call = Reduction(ranks, [values], [values], ReduceOp.Sum, (1.0, 1.0))
    call.kind = f'{_KIND} backward'
    return begin(ranks, call, None, lambda: values).wait()


class _Normalize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, given, weight, bias, eps, ranks, moments):
        ctx.ranks, (ctx.count, mean, variance) = ranks, moments
        ctx.save_for_backward(given, weight, mean, (variance + eps).rsqrt())
        dtype = _exact(given).dtype
        return torch.nn.functional.batch_norm(given, mean.to(dtype), variance.to(dtype), weight,
                                              bias, eps=eps)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        given, weight, mean, scale = ctx.saved_tensors
        exact, of_given = _exact(gradient), None
        apart = _exact(given) - _spread(mean, exact)
        sums = exact.sum(_dims(given)).double()
        along = (exact * apart).sum(_dims(given)).double()
        if ctx.needs_input_grad[0]:
            of_mean, of_apart = (_summed(torch.cat([sums, along]), ctx.ranks) / ctx.count).chunk(2)
            factor = scale if weight is None else scale * weight
            of_given = (exact - _spread(of_mean, exact) - apart *
                        _spread(of_apart * scale.square(), exact)) * _spread(factor, exact)
            of_given = of_given.to(given.dtype)
        of_weight, of_bias = (None, None) if weight is None else \
            ((along * scale).to(weight.dtype), sums.to(weight.dtype))
        return of_given, of_weight, of_bias, None, None, None


class SyncBatchNorm(torch.nn.modules.batchnorm._BatchNorm):
    """Replaces torch.nn.BatchNorm1d, 2d and 3d. In training the layer uses mean and variance over
    the batches of all ranks. Ranks may have batches of different sizes, or empty ones.

    Gradients of weight and bias are those of this rank's batch. The optimizer then averages or sums
    these gradients over ranks, like all other gradients."""

    def __init__(self, num_features, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True,
                 process_set=global_process_set):
        super().__init__(num_features, eps, momentum, affine, track_running_stats)
        self.process_set = process_set

    def _check_input_dim(self, input):
        if input.dim() < 2 or input.shape[1] != self.num_features:
            raise mismatch(f'{_KIND} of a batch of shape {list(input.shape)}, expected '
                           f'[batch, {self.num_features}, ...]')

    def forward(self, input):
        if not self.training or self.process_set.size() == 1:
            return super().forward(input)
        self._check_input_dim(input)
        ranks = self.process_set.sequences()
        moments = _moments(input, ranks)
        if self.track_running_stats:
            self._track(*moments)
        return _Normalize.apply(input, self.weight, self.bias, self.eps, ranks, moments)

    @torch.no_grad()
    def _track(self, count, mean, variance):
        self.num_batches_tracked += 1
        share = self.momentum if self.momentum is not None else 1 / int(self.num_batches_tracked)
        unbiased = variance * (count / (count - 1))
        for running, found in ((self.running_mean, mean), (self.running_var, unbiased)):
            running.mul_(1 - share).add_(found.to(running), alpha=share)
