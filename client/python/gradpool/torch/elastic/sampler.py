"""ElasticSampler: divides the rest of an epoch among the present workers."""
import random

import torch

from ...errors import mismatch
from .. import _door


class ElasticSampler(torch.utils.data.Sampler):
    """The samples of this worker in an epoch, for DataLoader(sampler=). A TorchState with this
    sampler divides the samples that are not recorded again after each change of workers.

      dataset  has a length, the same on all workers
      shuffle  whether the order is random; it depends on seed and epoch alone

    As in DistributedSampler, all workers have equally many samples: at the end of an epoch up to
    size() - 1 samples come twice."""

    def __init__(self, dataset, shuffle=True, seed=0):
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.epoch = self.processed_num = 0
        self.reset()

    def set_epoch(self, epoch):
        """Begins an epoch, of which no sample is used. Called at the end of an epoch, not at its
        beginning, where a worker may continue an epoch."""
        self.epoch, self.processed_num = epoch, 0
        self.reset()

    def record_batch(self, batch_idx, batch_size):
        """Records that each worker has used `batch_size` samples, which are not used again in this
        epoch. Called after optimizer.step() and before commit(). `batch_idx` has no effect: batches
        are recorded in their order."""
        self.processed_num += batch_size * self.num_replicas

    def record_indices(self, indices):
        """Raises Mismatch: single samples cannot be recorded."""
        raise mismatch('ElasticSampler.record_indices(): all workers use the samples in one order, '
                       'of which single ones cannot be left out; call record_batch()')

    def state_dict(self):
        return {'epoch': self.epoch, 'processed_num': self.processed_num}

    def load_state_dict(self, state):
        self.epoch, self.processed_num = state['epoch'], state['processed_num']
        self.reset()

    def reset(self):
        """Divides the samples that are not recorded among the present workers."""
        self.num_replicas, self.rank = _door.size(), _door.rank()
        order = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(order)
        self.remaining_indices = order[self.processed_num:]
        self.num_samples = -(-len(self.remaining_indices) // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self):
        if (self.num_replicas, self.rank) != (_door.size(), _door.rank()):
            raise mismatch(f'ElasticSampler of rank {self.rank} of {self.num_replicas} in a world '
                           f'of {_door.size()} workers: give the sampler to the TorchState, as in '
                           'TorchState(model, optimizer, sampler=sampler)')
        rest = self.remaining_indices
        return iter([rest[place % len(rest)]
                     for place in range(self.rank, self.total_size, self.num_replicas)])

    def __len__(self):
        return self.num_samples
