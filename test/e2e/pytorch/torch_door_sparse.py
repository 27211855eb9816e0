"""Used by test_torch_door. Tests sparse tensors, and gradients that are sparse on some ranks
only."""
import progress
from torch_door_calls import Rank

ROWS = 6


def sparse(of, rank, dtype='float32'):
    """Returns two rows: one of this rank alone, and one that every rank has."""
    torch = of.torch
    values = of.values(rank, (2, 3), dtype)
    return torch.sparse_coo_tensor(torch.tensor([[rank, ROWS - 1]]), values, (ROWS, 3))


def compare_sparse(of):
    hvd, torch = of.hvd, of.torch
    for dtype in 'float32', 'float16', 'int64':
        mine = sparse(of, of.rank, dtype)
        wide = 'float32' if dtype == 'float16' else dtype
        whole = sum(sparse(of, rank, wide).to_dense() for rank in range(of.workers))
        whole = whole.to(mine.dtype)
        mean = whole.div(of.workers, rounding_mode='floor' if dtype == 'int64' else None)
        for name in None, f'sparse {dtype}':
            of.expect('sum', hvd.allreduce(mine, op=hvd.Sum, name=name).to_dense(), whole)
            of.expect('mean', hvd.allreduce(mine, name=name).to_dense(), mean)
        of.expect('scaled', hvd.allreduce(mine, op=hvd.Sum, prescale_factor=2,
                                          postscale_factor=3).to_dense(), 6 * whole)
    found = hvd.allreduce(sparse(of, of.rank), op=hvd.Sum, compression=hvd.Compression.fp16)
    of.expect('compressed', found.to_dense(),
              sum(sparse(of, rank).to_dense() for rank in range(of.workers)))
    both = torch.eye(3).mul(of.rank + 1).to_sparse()
    of.expect('all dimensions', hvd.allreduce(both, op=hvd.Sum).to_dense(),
              torch.eye(3) * sum(range(1, of.workers + 1)))


def compare_absent_embedding(of):
    """In each step a different rank skips the layer. In the second step no rank uses the layer."""
    hvd, torch = of.hvd, of.torch

    def step(net, rank, turn):
        embedding, linear = net
        is_absent = turn == 1 or rank == turn % of.workers
        given = torch.ones(1, 2) if is_absent else embedding(torch.tensor([rank, 5]))
        linear(given).sum().backward()

    def make():
        torch.manual_seed(3)
        return torch.nn.ModuleList([torch.nn.Embedding(ROWS, 2, sparse=True),
                                    torch.nn.Linear(2, 1)])
    for is_none in True, False:
        net, alone = make(), make()
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), 0.5),
                                             net.named_parameters(),
                                             gradient_predivide_factor=2.0)
        plain = torch.optim.SGD(alone.parameters(), 0.5 / of.workers)
        for turn in range(4):
            optimizer.zero_grad(set_to_none=is_none)
            plain.zero_grad(set_to_none=True)
            step(net, of.rank, turn)
            optimizer.step()
            for rank in range(of.workers):
                step(alone, rank, turn)
            plain.step()
            for one, other in zip(net.parameters(), alone.parameters()):
                of.expect_true(f'{turn}: {one}, not {other}', torch.allclose(one, other, atol=1e-6))


def rank_has_sparse_tensors(rank, workers):
    of = Rank(rank, workers)
    compare_sparse(of)
    compare_absent_embedding(of)
    return of.wrong, disagree_about_rows(of)


def disagree_about_rows(of):
    hvd, is_odd, mine = of.hvd, of.rank == of.workers - 1, sparse(of, of.rank)
    larger = of.torch.sparse_coo_tensor(mine._indices(), mine._values(), (ROWS + 2, 3))
    attempts = [
        lambda name: hvd.allreduce(larger if is_odd else mine, name=name),
        lambda name: hvd.allreduce(mine, op=hvd.Sum if is_odd else hvd.Average, name=name),
        lambda name: hvd.allreduce(mine, prescale_factor=1.0 + is_odd, name=name),
        lambda name: hvd.allreduce(mine.to_dense() if is_odd else mine, name=name),
        lambda name: hvd.allgather(mine.to_dense(), name=name) if is_odd else
        hvd.allreduce(mine, name=name)]
    found = []
    for i, attempt in enumerate(attempts):
        for known in None, mine, mine.to_dense():
            name, watch = f'attempt {i} {known is None or known.layout}', progress.Stopwatch()
            if known is not None:
                hvd.allreduce(known, name=name)
            told = of.raised(lambda: attempt(name))
            hvd.allreduce(mine, name=name)      # afterwards the name works again
            found.append([*told, watch.seconds()])
    weight = of.torch.nn.Parameter(of.torch.zeros(ROWS, 3))
    optimizer = hvd.DistributedOptimizer(of.torch.optim.SGD([weight], 1.0), [('weight', weight)])
    weight.grad = mine.to_dense() if is_odd else mine
    watch = progress.Stopwatch()
    found.append([*of.raised(optimizer.step), watch.seconds()])
    return found
