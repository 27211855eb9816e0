"""Tests parts of PyTorch 2 that use a backend. Each case runs on gloo first. Then it must give the
same result on gradpool. PyTorch 1 lacks these parts."""
import collections
import importlib.metadata
import os
import tempfile
import unittest

import python_case
import ranks
from python_case import setUpModule, tearDownModule     # noqa: found by name

BACKENDS = 'gloo', 'gradpool'
STEPS = 4
SEED = 7
TORCH_MAJOR = int(importlib.metadata.version('torch').partition('.')[0])


def begin(rank, workers):
    """Makes a default group of TEST_BACKEND. Returns torch and torch.distributed."""
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    backend = os.environ['TEST_BACKEND']
    if backend == 'gradpool':
        import gradpool.distributed     # noqa: registers the backend
    dist.init_process_group(backend, rank=rank, world_size=workers,
                            init_method=f"file://{os.environ['TEST_FOLDER']}/store-{backend}")
    return torch, dist


def values(torch, rank, *shape):
    """Returns integers of this rank. Their sums are exact."""
    return (torch.arange(torch.Size(shape).numel()) % 7 + rank).float().reshape(shape)


# ---- functions of (rank, workers), with compared results ----

def rank_calls_functional_collectives(rank, workers):
    torch, dist = begin(rank, workers)
    from torch.distributed import _functional_collectives as of
    group, mine = dist.group.WORLD, values(torch, rank, 4, 3)
    found = collections.OrderedDict(
        all_reduce=of.all_reduce(mine, 'sum', group),
        all_reduce_max=of.all_reduce(mine, 'max', group),
        all_gather=of.all_gather_tensor(mine, 0, group),
        all_gather_1=of.all_gather_tensor(mine, 1, group),
        broadcast=of.broadcast(mine, 1, group),
        all_to_all=of.all_to_all_single(mine, [2, 2], [2, 2], group),
        uneven=of.all_to_all_single(mine, [1, 3] if rank == 0 else [3, 1],
                                    [1, 3] if rank == 0 else [3, 1], group),
    )
    for index, one in enumerate(of.all_reduce_coalesced([mine, mine * 2], 'sum', group)):
        found[f'all_reduce_coalesced {index}'] = one
    for index, one in enumerate(of.all_gather_into_tensor_coalesced([mine, mine * 2], group)):
        found[f'all_gather_coalesced {index}'] = one
    return [[name, one.tolist()] for name, one in found.items()]


def rank_gathers_dtypes_together(rank, workers):
    """Gathers integers that no float represents exactly, so that gloo loses bits. Gathers bytes
    with them."""
    torch, dist = begin(rank, workers)
    from torch.distributed import _functional_collectives as of
    mine = [values(torch, rank, 3), torch.tensor([2 ** 60 + rank, -rank]),
            torch.tensor([rank, 200, 7], dtype=torch.uint8), values(torch, rank, 5)]
    found = of.all_gather_into_tensor_coalesced(mine, dist.group.WORLD)
    return [[str(one.dtype), one.tolist()] for one in found]


def rank_waits_late(rank, workers):
    """Starts far more operations than the backend keeps results for. Waits for the last one
    first."""
    torch, dist = begin(rank, workers)
    from torch.distributed import _functional_collectives as of
    begun = [of.all_reduce(values(torch, rank + number, 4), 'sum', dist.group.WORLD)
             for number in range(200)]
    dist.barrier()
    return [one.tolist() for one in reversed(begun)]


def rank_scatters_reduced(rank, workers):
    torch, dist = begin(rank, workers)
    from torch.distributed import _functional_collectives as of
    group, mine = dist.group.WORLD, values(torch, rank, 4, 3)
    found = [of.reduce_scatter_tensor(mine, 'sum', 0, group)]
    found += of.reduce_scatter_tensor_coalesced([mine, mine * 2], 'sum', [0, 0], group)
    return [one.tolist() for one in found]


def rank_redistributes(rank, workers):
    torch, dist = begin(rank, workers)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import distribute_tensor, DTensor, Partial, Replicate, Shard
    mesh = init_device_mesh('cpu', (workers,))
    whole = values(torch, 0, 4, 6)
    rows = distribute_tensor(whole, mesh, [Shard(0)])
    found = {
        'replicate': rows.redistribute(mesh, [Replicate()]).to_local(),
        'columns': rows.redistribute(mesh, [Shard(1)]).to_local(),
        'full': rows.full_tensor(),
        'product': (rows @ distribute_tensor(whole.t().contiguous(), mesh, [Replicate()]))
        .full_tensor(),
        'partial': DTensor.from_local(values(torch, rank, 4, 6), mesh, [Partial()])
        .redistribute(mesh, [Replicate()]).to_local(),
    }
    inner = distribute_tensor(whole.t().contiguous(), mesh, [Shard(0)])
    found['sum of products'] = (distribute_tensor(whole, mesh, [Shard(1)]) @ inner).full_tensor()
    return [[name, one.tolist()] for name, one in found.items()]


def rank_shards_rows_of_sums(rank, workers):
    torch, dist = begin(rank, workers)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Shard
    mesh = init_device_mesh('cpu', (workers,))
    sums = DTensor.from_local(values(torch, rank, 4, 6), mesh, [Partial()])
    return sums.redistribute(mesh, [Shard(0)]).to_local().tolist()


def rank_uses_a_mesh(rank, workers):
    torch, dist = begin(rank, workers)
    from torch.distributed.device_mesh import init_device_mesh
    mesh = init_device_mesh('cpu', (2, workers // 2), mesh_dim_names=('rows', 'columns'))
    found = []
    for name in mesh.mesh_dim_names:
        mine = values(torch, rank, 5)
        dist.all_reduce(mine, group=mesh.get_group(name))
        found.append([name, mesh[name].size(), mesh.get_local_rank(name), mine.tolist()])
    return found


def transformer(torch):
    torch.manual_seed(SEED)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    return torch.nn.Sequential(torch.nn.Embedding(11, 16), torch.nn.TransformerEncoder(layer, 2),
                               torch.nn.Linear(16, 11))


def train(torch, model, rank, optimizer=None):
    """Makes some steps. Returns their losses."""
    optimizer = optimizer or torch.optim.Adam(model.parameters(), lr=1e-2)
    random, losses = torch.Generator().manual_seed(rank), []
    for _ in range(STEPS):
        words = torch.randint(0, 11, (4, 6), generator=random)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(words).flatten(0, 1), words.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def ddp(torch, model, **options):
    """Returns a DDP model. On gradpool it has the hook."""
    wrapped = torch.nn.parallel.DistributedDataParallel(model, **options)
    if os.environ['TEST_BACKEND'] == 'gradpool' and 'TEST_HOOK' in os.environ:
        from gradpool import ddp as hook
        hook.attach(wrapped)
    return wrapped


def rank_trains_by_ddp(rank, workers):
    torch, dist = begin(rank, workers)
    found = []
    for options in ({}, {'static_graph': True}, {'find_unused_parameters': True},
                    {'gradient_as_bucket_view': True}):
        found.append(train(torch, ddp(torch, transformer(torch), **options), rank))
    return found


def rank_compiles(rank, workers):
    torch, dist = begin(rank, workers)
    model = torch.compile(ddp(torch, transformer(torch)))
    return train(torch, model, rank)


def rank_keeps_checkpoints(rank, workers):
    torch, dist = begin(rank, workers)
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint import state_dict as of
    folder = f"{os.environ['TEST_FOLDER']}/checkpoint-{os.environ['TEST_BACKEND']}"
    model = ddp(torch, transformer(torch))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    train(torch, model, rank, optimizer)
    model_state, optimizer_state = of.get_state_dict(model, optimizer)
    checkpoint.save({'model': model_state, 'optimizer': optimizer_state}, checkpoint_id=folder)
    again = ddp(torch, transformer(torch))
    its_optimizer = torch.optim.Adam(again.parameters(), lr=1e-2)
    model_state, optimizer_state = of.get_state_dict(again, its_optimizer)
    state = {'model': model_state, 'optimizer': optimizer_state}
    checkpoint.load(state, checkpoint_id=folder)
    of.set_state_dict(again, its_optimizer, model_state_dict=state['model'],
                      optim_state_dict=state['optimizer'])
    return [train(torch, model, rank, optimizer), train(torch, again, rank, its_optimizer)]


@unittest.skipIf(TORCH_MAJOR < 2, 'PyTorch 1 has none of it')
class Torch2(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix='gradpool-torch-2-')
        self.addCleanup(holder.cleanup)
        self.folder = holder.name

    def run_on(self, backend, function, workers=2, **environment):
        folder = tempfile.mkdtemp(dir=self.folder)
        return ranks.run_ranks(function, workers, TEST_BACKEND=backend, TEST_FOLDER=folder,
                               GRADPOOL_JOB=f'{function}-{os.path.basename(folder)}', **environment)

    def compare(self, *arguments, **options):
        of_gloo, ours = (self.run_on(backend, *arguments, **options) for backend in BACKENDS)
        self.assertEqual(ours, of_gloo)
        return ours

    def test_functional_collectives_have_the_results_of_gloo(self):
        self.compare('rank_calls_functional_collectives')
        self.compare('rank_scatters_reduced')

    def test_tensors_of_several_dtypes_are_gathered_together(self):
        for found in self.run_on('gradpool', 'rank_gathers_dtypes_together'):
            self.assertEqual(found, [
                ['torch.float32', [0, 1, 2, 1, 2, 3]],
                ['torch.int64', [2 ** 60, 0, 2 ** 60 + 1, -1]],
                ['torch.uint8', [0, 200, 7, 1, 200, 7]],
                ['torch.float32', [0, 1, 2, 3, 4, 1, 2, 3, 4, 5]]])

    def test_operations_that_are_waited_for_late_have_their_results(self):
        self.compare('rank_waits_late')

    def test_distributed_tensors_are_redistributed(self):
        self.compare('rank_redistributes')
        self.compare('rank_shards_rows_of_sums')

    def test_a_mesh_of_devices_has_its_groups(self):
        self.compare('rank_uses_a_mesh', 4)

    def test_ddp_with_each_option_trains_to_the_same_loss(self):
        found = self.compare('rank_trains_by_ddp')
        self.assertEqual(self.run_on('gradpool', 'rank_trains_by_ddp', TEST_HOOK='1'), found)

    def test_a_compiled_ddp_model_trains_to_the_same_loss(self):
        found = self.compare('rank_compiles')
        self.assertEqual(self.run_on('gradpool', 'rank_compiles', TEST_HOOK='1'), found)

    def test_a_checkpoint_of_torch_goes_on_with_the_same_loss(self):
        for went_on, loaded in self.compare('rank_keeps_checkpoints'):
            self.assertEqual(went_on, loaded)


if __name__ == '__main__':
    ranks.main(globals(), forks=True)
