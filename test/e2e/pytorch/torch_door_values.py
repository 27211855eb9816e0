"""Used by test_torch_door and test_hvd_scripts. Tests values that are easily lost: factors of every
dtype, gradients by Horovod's rules, unusual strides, dropped handles. Also tests names used for
several things, and gradients that a script changes during their transfer."""
import time

from torch_door_calls import UNTIL_S

FACTORS = (1e-3, 131072.0), (6e4, 2e-8), (300.0, 1 / 3), (3.0, 0.1)


def compare_factors(of):
    """16-bit floats must be multiplied and added as float32, and rounded only once."""
    torch, hvd = of.torch, of.hvd
    for dtype in torch.float16, torch.bfloat16:
        for value, factor in FACTORS:
            every = [torch.full((2 * of.workers, 2), value / (rank + 1)).to(dtype)
                     for rank in range(of.workers)]
            mine, rows = every[of.rank], slice(2 * of.rank, 2 * of.rank + 2)
            before = sum(one.float() * factor for one in every)
            after = sum(one.float() for one in every) * factor
            for kind, wide in ('prescale_factor', before), ('postscale_factor', after):
                for op, wanted in ((hvd.Sum, wide.to(dtype)),
                                   (hvd.Average, (wide / of.workers).to(dtype))):
                    said = f'{dtype} times {factor:g} as {kind}, {op.name}'
                    options = {kind: factor, 'op': op}
                    close_to(of, said, hvd.allreduce(mine, **options), wanted)
                    close_to(of, said, hvd.grouped_allreduce([mine], **options)[0], wanted)
                    close_to(of, said, hvd.allreduce_(mine.clone(), **options), wanted)
                    close_to(of, said, hvd.reducescatter(mine, **options), wanted[rows])
                    close_to(of, said, hvd.allreduce(mine.to_sparse(1), **options).to_dense(),
                             wanted)


def close_to(of, what, found, wanted):
    """Compares values. One unit of the dtype is allowed, because the order of a float32 product can
    change its last bit."""
    unit = of.torch.finfo(wanted.dtype).eps * wanted.float().abs() + 2 ** -24
    of.expect_true(f'{what}: {found} instead of {wanted}', found.dtype == wanted.dtype and bool(
        ((found.float() - wanted.float()).abs() <= unit).all() and wanted.isfinite().all()))


def compare_divided_means(of):
    """Uses gradient_predivide_factor with 16-bit floats, some of the largest possible value."""
    torch, hvd = of.torch, of.hvd
    for factor in 7.0, 1e5:
        for is_sparse in False, True:
            weight = torch.nn.Parameter(torch.zeros(2, 2, dtype=torch.float16))
            optimizer = hvd.DistributedOptimizer(
                torch.optim.SGD([weight], 1.0), [('half', weight)],
                gradient_predivide_factor=factor)
            mean = torch.tensor([[60000.0, 1e-3], [0.1, 7.0]], dtype=torch.float16)
            weight.grad = mean.to_sparse(1) if is_sparse else mean.clone()
            optimizer.synchronize()
            found = weight.grad.to_dense() if is_sparse else weight.grad
            of.expect(f'divided by {factor:g}', found, mean)


def compare_whole_factors(of):
    """With an integer factor, integers are exact. With another factor they are computed as
    float64."""
    torch, hvd, count = of.torch, of.hvd, of.workers
    large = (1 << 54) + 1
    for dtype, value, factor, wanted in (
            ('int64', large, 1, count * large), ('int64', large, 2, 2 * count * large),
            ('int64', -large, 3, -3 * count * large),
            ('int32', (1 << 24) + 1, 3, 3 * count * ((1 << 24) + 1)),
            ('int32', (1 << 24) + 3, 0.5, count * ((1 << 23) + 1)),
            ('int8', 9, 1 / 3, 3 * count), ('uint8', 40, 0.5, 20 * count)):
        mine = torch.full((count, 2), value, dtype=getattr(torch, dtype))
        wanted = torch.full((count, 2), wanted, dtype=mine.dtype)
        options = {'op': hvd.Sum, 'prescale_factor': factor}
        said = f'{dtype} {value} times {factor}'
        of.expect(said, hvd.allreduce(mine, **options), wanted)
        of.expect(said, hvd.reducescatter(mine, **options), wanted[:1])
        if dtype.startswith('int') and dtype != 'int8':
            of.expect(said, hvd.allreduce(mine.to_sparse(1), **options).to_dense(), wanted)
    mine = torch.tensor([of.rank, -of.rank, large])
    total = sum(range(count))
    of.expect('a mean times 2', hvd.allreduce(mine, postscale_factor=2), torch.tensor(
        [2 * total // count, -2 * total // count, 2 * large]))
    of.expect('a mean times a half', hvd.allreduce(mine[:2], postscale_factor=0.5), torch.tensor(
        [int(total / count / 2 // 1), int(-total / count / 2 // 1)]))


def compare_gradient_rules(of):
    """Compares the gradient of each collective with Horovod's rule, with factors and in groups."""
    torch, hvd, count = of.torch, of.hvd, of.workers
    factors = {'prescale_factor': 0.5, 'postscale_factor': 4.0}
    weights = of.every((count, 2))
    rows = [weight[:1] for weight in weights]
    total, gathered = sum(weights), torch.cat(rows)

    def through(call, weight, is_grouped=False, **options):
        given = of.values(of.rank, (count, 2)).requires_grad_()
        found = call([given], **options)[0] if is_grouped else call(given, **options)
        (found * weight).sum().backward()
        return given.grad
    for is_grouped, reduce, scatter in ((False, hvd.allreduce, hvd.reducescatter),
                                        (True, hvd.grouped_allreduce, hvd.grouped_reducescatter)):
        for op, mean, times in (hvd.Sum, total, count), (hvd.Average, total / count, 1):
            for options, factor in ({}, 1), (factors, 2):
                of.expect(f'through allreduce {op}', through(
                    reduce, weights[of.rank], is_grouped, op=op, **options), factor * mean)
                of.expect(f'through reducescatter {op}', through(
                    scatter, rows[of.rank], is_grouped, op=op, **options),
                    factor * times * gathered)
    wide = of.every((count * count, 2))
    mean = (sum(wide) / count).chunk(count)[of.rank]
    for is_grouped, gather in (False, hvd.allgather), (True, hvd.grouped_allgather):
        of.expect('through allgather', through(gather, wide[of.rank], is_grouped), mean)
    of.expect('through alltoall with splits', through(
        lambda given: hvd.alltoall(given, splits=[1] * count)[0], weights[of.rank]),
        torch.cat([weight[of.rank:of.rank + 1] for weight in weights]))
    of.expect('through broadcast', through(
        lambda given: hvd.broadcast(given, 0), weights[of.rank]),
        total / count if of.rank == 0 else 0 * total)


# ---- strides ----

def columns(of, rank, dtype):
    """Returns tensors of a rank. Some dimensions have one element and an arbitrary stride."""
    torch = of.torch
    whole = (torch.arange(30) % 3 + rank).view(3, 5, 2).to(getattr(torch, dtype))
    return [whole[:1, 2, 0], whole[:, 2:3, 1], whole[:1, 1:2, :1], whole[:2, 1, 1:],
            whole.permute(2, 1, 0)[:1]]


def compare_columns(of):
    hvd, torch = of.hvd, of.torch
    for dtype in 'float32', 'float16', 'bfloat16', 'int16', 'uint8', 'bool', 'complex64', 'int64':
        every = list(zip(*[columns(of, rank, dtype) for rank in range(of.workers)]))
        mine = [of_ranks[of.rank] for of_ranks in every]
        for i, (tensor, of_ranks) in enumerate(zip(mine, every)):
            said = f'{dtype} of strides {tensor.stride()}'
            total = sum(one.to(torch.int32) if dtype == 'bool' else one for one in of_ranks)
            total = total.to(tensor.dtype)
            of.expect(said, hvd.allgather(tensor), torch.cat(of_ranks))
            of.expect(said, hvd.broadcast(tensor, 1), of_ranks[1])
            of.expect(said, hvd.allreduce(tensor, op=hvd.Sum), total)
            splits = [len(tensor)] + [0] * (of.workers - 1)
            found, _ = hvd.alltoall(tensor, splits=splits)
            of.expect(said, found, torch.cat(of_ranks) if of.rank == 0 else tensor[:0])
            dealt = hvd.reducescatter(torch.cat([tensor] * of.workers), op=hvd.Sum)
            of.expect(said, dealt, total)
            for call, wanted in ((lambda one: hvd.allreduce_(one, op=hvd.Sum), total),
                                 (lambda one: hvd.broadcast_(one, 1), of_ranks[1])):
                place = columns(of, of.rank, dtype)[i]
                call(place)
                of.expect(f'{said}, in place', place, wanted)
        of.expect(f'columns of {dtype}', hvd.grouped_allgather(mine), map(torch.cat, every))
        if dtype != 'bool':
            of.expect(f'columns of {dtype}', hvd.grouped_allreduce(mine, op=hvd.Sum),
                      map(sum, every))


# ---- handles and names ----

def compare_dropped_handles(of):
    """Starts operations but does not wait. They must complete in place and leave no state."""
    torch, hvd = of.torch, of.hvd
    for count in 1, 3, 200:
        for name in None, f'dropped {count}':
            given = [of.values(of.rank, (5,)) + i for i in range(count)]
            for i, tensor in enumerate(given):
                hvd.allreduce_async_(tensor, op=hvd.Sum, name=name and f'{name}.{i}')
            sequences, until = hvd.global_process_set.sequences(), time.monotonic() + UNTIL_S
            while any(sequence.open for sequence in sequences.all()) and time.monotonic() < until:
                time.sleep(0.002)
            of.expect(f'{count} dropped', given,
                      [sum(of.every((5,))) + i * of.workers for i in range(count)])
    hvd.broadcast_async_(torch.ones(3), 0)
    hvd.allgather_async(torch.ones(3))
    hvd.barrier()


def compare_changing_names(of):
    """Changes shape, dtype or operation of a name from call to call, and back."""
    torch, hvd, count = of.torch, of.hvd, of.workers
    for turn in range(2):
        for shape, dtype in (((4, 2), 'float32'), ((2, 4), 'float32'), ((8,), 'float64'),
                             ((), 'int64'), ((0, 3), 'float32'), ((count, 3), 'float16')):
            every = of.every(shape, dtype)
            of.expect('another shape', hvd.allreduce(every[of.rank], op=hvd.Sum, name='changes'),
                      sum(every))
            of.expect('another operation', hvd.broadcast(every[of.rank], 1, name='changes'),
                      every[1])
            if shape:
                of.expect('rows', hvd.allgather(every[of.rank], name='changes'), torch.cat(every))
        mixed = [of.every((2,), dtype) for dtype in ('float32', 'int64', 'bfloat16', 'uint8')]
        of.expect('a group', hvd.grouped_allreduce([every[of.rank] for every in mixed],
                                                   op=hvd.Sum, name='changes'), map(sum, mixed))


def compare_all(of):
    for compare in (compare_factors, compare_divided_means, compare_whole_factors,
                    compare_gradient_rules, compare_columns, compare_dropped_handles,
                    compare_changing_names):
        compare(of)


# ---- gradients changed during their transfer ----

def halve(gradient):
    gradient.data = gradient.data / 2


def compare_changes_of_every_kind_of_gradient(of):
    """Changes values of gradients through .data, so that torch counts no change: in a pack, in
    shared memory, encoded, and as 16-bit floats."""
    torch, hvd = of.torch, of.hvd
    for name, sizes, compression in (('pack', (4, 5), hvd.Compression.none),
                                     ('lent', (300,), hvd.Compression.none),
                                     ('codes', (300,), hvd.Compression.topk(0.5)),
                                     ('halves', (300,), hvd.Compression.fp16)):
        net = torch.nn.ParameterList(torch.nn.Parameter(torch.ones(size, size)) for size in sizes)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), 1.0),
                                             net.named_parameters(), compression)

        def backward():
            optimizer.zero_grad()
            sum(one.sum() for one in net).backward()
        for _ in range(3):
            backward()
            optimizer.step()
        for change in (lambda: torch.nn.utils.clip_grad_value_(net.parameters(), 0.5),
                       lambda: torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)):
            backward()
            change()
            of.expect_true(f'{name} changed on the way', 'optimizer.synchronize() before'
                           in of.raised(optimizer.step)[1])
        backward()
        optimizer.synchronize()
        torch.nn.utils.clip_grad_value_(net.parameters(), 0.5)
        with optimizer.skip_synchronize():
            optimizer.step()
