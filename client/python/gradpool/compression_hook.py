"""Compression as a plain communication hook of torch, for any process group. torch's wrappers of
hooks accept this hook:

    state = CompressionState(model, gradpool.codecs.TopK(0.01))
    model.register_comm_hook(state, fp16_compress_wrapper(compression_hook))

With the backend `gradpool` the collectives of the hook run on the service."""
import torch
import torch.distributed

from ._model.residuals import Residuals
from .codecs import Feedback


class CompressionState:
    """Residuals and rounds of a DistributedDataParallel model, by parameter.

    residuals  with state_dict() and load_state_dict() for checkpoints"""

    def __init__(self, model, codec):
        self.group, self.feedback = model.process_group, Feedback(codec)
        named = dict(model.module.named_parameters())
        self.names = {id(one): name for name, one in named.items()}
        elements = {name: one.numel() for name, one in named.items()}
        self.residuals = Residuals(self.feedback, elements,
                                   torch.distributed.get_rank(self.group))


def compression_hook(state, bucket):
    """The communication hook. DDP requires the name of its second parameter."""
    workers, codec = torch.distributed.get_world_size(state.group), state.feedback.codec
    gradients = [(state.names[id(parameter)], gradient) for parameter, gradient in
                 zip(bucket.parameters(), bucket.gradients())]
    coded = [one for one in gradients if codec.takes(one[1].numel())]
    whole = [gradient for _, gradient in gradients if not codec.takes(gradient.numel())]
    codes = [torch.from_numpy(state.feedback.encode(name, gradient.float().cpu()))
             .to(gradient.device) for name, gradient in coded]
    sums = whole + (codes if codec.operation == 'mean' else [])
    summed, works = _sum(sums, state.group)
    gathered = []
    if coded and codec.operation == 'gather':
        mine = torch.cat(codes)
        gathered = [torch.empty_like(mine) for _ in range(workers)]
        works.append(torch.distributed.all_gather(gathered, mine, state.group, async_op=True))

    def finish(all_works):
        all_works.value()       # raises errors of the works
        means = [part / workers for part in summed]
        for gradient, mean in zip(whole, means):
            gradient.copy_(mean.view_as(gradient))
        found = means[len(whole):] or _by_tensor(gathered, codes)
        for (name, gradient), sent in zip(coded, found):
            mean = torch.empty(gradient.shape)
            state.feedback.decode(name, sent.cpu(), mean, workers)
            gradient.copy_(mean)
        return bucket.buffer()
    return torch.futures.collect_all([work.get_future() for work in works]).then(finish)


def _sum(tensors, group):
    """Returns (views of the sums, works). The tensors are sent as one tensor."""
    if not tensors:
        return [], []
    together = torch.cat([tensor.reshape(-1).float() for tensor in tensors])
    work = torch.distributed.all_reduce(together, group=group, async_op=True)
    return together.split([tensor.numel() for tensor in tensors]), [work]


def _by_tensor(gathered, codes):
    """Returns, for each tensor, the codes of all ranks in rank order."""
    sizes = [code.numel() for code in codes]
    return [torch.cat(parts) for parts in zip(*(of_rank.split(sizes) for of_rank in gathered))]
