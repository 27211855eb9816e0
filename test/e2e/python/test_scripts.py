"""Runs typical scripts with gradpool.ddp.attach() and the backend `gradpool`. Cases: uneven inputs,
sparse gradients, dropped models and handles, several groups, unusual strides, timeouts."""
import copy
import datetime
import gc
import io
import os
import sys
import tempfile
import unittest
import weakref

import harness
import ranks
import test_ddp
from test_ddp import setUpModule, tearDownModule     # noqa: found by name

LENT = 20000        # number of elements of a gradient that is large enough for shared memory


def begin(rank, workers, backend='gloo', store='store', **options):
    """Makes a default group. Returns torch and torch.distributed."""
    import torch
    import torch.distributed as dist
    import gradpool.ddp
    import gradpool.distributed     # noqa: registers the backend
    dist.init_process_group(backend, init_method=f"file://{os.environ['TEST_STORE']}/{store}",
                            rank=rank, world_size=workers, **options)
    return torch, dist


def wrapped(module, **options):
    import torch
    return torch.nn.parallel.DistributedDataParallel(module, **options)


def attach(model, **options):
    import gradpool.ddp
    return gradpool.ddp.attach(model, **options)


def refusal(call, *arguments, **options):
    """Makes a call that must fail. Returns the text of its GradpoolError."""
    import gradpool
    try:
        call(*arguments, **options)
    except gradpool.GradpoolError as error:
        return str(error)
    return 'nothing was raised'


def step(model, value):
    """Runs backward(). The model returns the sum of its inputs, so the gradient is `value`."""
    import torch
    model.zero_grad()
    model(torch.full((1, model.module.in_features), float(value))).sum().backward()
    return model.module.weight.grad[0, 0].item()


# ---- uneven inputs ----

def rank_runs_out(rank, workers, are_views):
    """Runs four loops. The ranks have different numbers of batches. All gradients of rank r are r +
    1. Returns the gradients of each step of each loop."""
    torch, _ = begin(rank, workers)
    from torch.distributed.algorithms.join import Join
    model = wrapped(torch.nn.Linear(LENT, 1, bias=False), gradient_as_bucket_view=are_views)
    attach(model)
    found = []
    for batches, how in (((0, 2), Join), ((1, 4), Join), ((2, 2), None), ((3, 1), Join)):
        with how([model]) if how else model.join(enable=False):
            found.append([step(model, rank + 1) for _ in range(batches[rank])])
    return found


def rank_runs_out_of_views(rank, workers):
    return rank_runs_out(rank, workers, True)


def rank_runs_out_of_copies(rank, workers):
    return rank_runs_out(rank, workers, False)


def rank_joins_otherwise(rank, workers):
    torch, dist = begin(rank, workers)
    net = torch.nn.Linear(4, 1)
    stepped, model = wrapped(net), wrapped(torch.nn.Linear(4, 1))
    attach(stepped, optimizer=torch.optim.SGD(net.parameters(), 0.1))
    attach(model)
    bare = wrapped(torch.nn.Linear(4, 1), process_group=dist.new_group(backend='gradpool'))
    return [refusal(stepped.join), [refusal(one.join, divide_by_initial_world_size=False)
                                    for one in (model, bare)], refusal(stepped.join, enable=False)]


# ---- sparse gradients ----

# values of a step: rows of rank 0, rows of rank 1, sum of each row of the mean; a row has four
# elements
EMBEDDED = (([3, 3], [4, 5], {3: 4, 4: 2, 5: 2}), ([3], [], {3: 2}), ([], [1], {1: 2}),
            ([2], [2], {2: 4}), ([], [], {}), ([0], [9], {0: 2, 9: 2}))


def rows_of(tensor):
    tensor = tensor.coalesce()
    sums = tensor.values().flatten(1).sum(1).tolist()
    return dict(zip(map(str, tensor.indices()[0].tolist()), sums))


def rank_embeds(rank, workers):
    torch, _ = begin(rank, workers, os.environ['TEST_BACKEND'])
    net = torch.nn.Sequential(torch.nn.Embedding(10, 4, sparse=True), torch.nn.Linear(4, 8))
    model, found = wrapped(net), []
    if os.environ['TEST_BACKEND'] == 'gloo':
        attach(model)
    for *rows, _ in EMBEDDED:
        model.zero_grad()
        net[1].weight.data.fill_(1 / 8)
        model(torch.tensor(rows[rank], dtype=torch.int64)).sum().backward()
        found.append(rows_of(net[0].weight.grad))
    return found


def rank_reduces_sparse(rank, workers):
    """Reduces all of EMBEDDED by hand with each dtype. Also reduces a tensor without a dense
    dimension and a row of zeros."""
    torch, dist = begin(rank, workers, 'gradpool')
    found = []
    for dtype in torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.bool:
        for *rows, _ in EMBEDDED:
            index = torch.tensor([rows[rank]], dtype=torch.int64)
            tensor = torch.sparse_coo_tensor(index, torch.ones(len(rows[rank]), 4).to(dtype),
                                             (10, 4))
            dist.all_reduce(tensor)
            found.append(sorted(rows_of(tensor)))
    single = torch.sparse_coo_tensor([[rank], [1]], [2.0], (2, 2))
    dist.all_reduce(single)
    zeros = torch.sparse_coo_tensor([[rank]], torch.zeros(1, 3), (4, 3))
    dist.all_reduce(zeros)
    return found, single.coalesce().indices().tolist(), rows_of(zeros)


def rank_ties(rank, workers):
    """Trains a weight shared by a sparse embedding and a layer. Its gradients are dense, because
    the layer comes first. Lanes must not overwrite the neighbouring parameter."""
    torch, _ = begin(rank, workers)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.last = torch.nn.Linear(4, 10, bias=False)
            self.rows = torch.nn.Embedding(10, 4, sparse=True)
            self.rows.weight = self.last.weight
            self.scale = torch.nn.Parameter(torch.ones(6))

        def forward(self, rows):
            return (self.last(self.rows(rows)).sum() + self.scale.sum()) * (rank + 1)
    net = Net()
    model = wrapped(net)
    attach(model)
    for _ in range(3):
        model.zero_grad()
        net.last.weight.data.fill_(1.0)
        model(torch.tensor([rank])).backward()
    return net.last.weight.grad.sum(1).tolist(), net.scale.grad.tolist()


def rank_embeds_otherwise(rank, workers):
    from gradpool.codecs import OneBit
    torch, _ = begin(rank, workers)
    net = torch.nn.Embedding(4, 4, sparse=True)
    return [refusal(attach, wrapped(net), compression=OneBit()),
            refusal(attach, wrapped(net), optimizer=torch.optim.SGD(net.parameters(), 0.1))]


# ---- dropped objects ----

def state_here():
    """Returns the number of descriptors, the number of threads, and the bytes of mapped job memory
    of this process."""
    with open('/proc/self/maps', encoding='utf-8') as maps:
        lent = [line.split()[0].split('-') for line in maps if 'gradpool' in line]
    return (len(os.listdir('/proc/self/fd')), len(os.listdir('/proc/self/task')),
            sum(int(end, 16) - int(start, 16) for start, end in lent))


def settle(first):
    """Waits until this process has no more objects than at the first call."""
    if not first:
        first.append(state_here())
    harness.until(lambda: all(now <= then for now, then in zip(state_here(), first[0])),
                  lambda: f'descriptors, threads, bytes of {first[0]}: {state_here()}')


def job_has(tensors):
    # collects again: during an earlier collection the thread that completes pushes may have held a
    # model
    gc.collect()
    job = test_ddp.service.job(os.environ['GRADPOOL_JOB'])
    return (job['tensors'] if job else 0) <= tensors


def rank_folds(rank, workers, optimizer_of=None):
    """Trains eight models in one script, one after the other. Returns the number of remaining
    models."""
    torch, dist = begin(rank, workers)
    left, first, kept = [], [], []
    for fold in range(8):
        net = torch.nn.Linear(LENT, 1)
        optimizer = optimizer_of and optimizer_of(net)
        model = wrapped(net, gradient_as_bucket_view=fold % 2 == 0)
        attachment = attach(model, optimizer=optimizer)
        # a kept attachment must not keep its model
        kept.append(attachment if fold % 3 == 0 else None)
        for _ in range(2):
            step(model, rank + 1)
            if optimizer:
                optimizer.step()
        left.append(weakref.ref(net))
        net = model = attachment = optimizer = None
        if rank or fold % 2:    # the other ranks collect garbage at other times
            gc.collect()        # frees models
            gc.collect()        # frees the optimizers of the freed models
        if fold % 2:
            harness.until(lambda: job_has(0), 'the folds have given back their tensors')
            dist.barrier()
            settle(first)
    gc.collect()
    return sum(one() is not None for one in left)


def rank_folds_with_an_optimizer(rank, workers):
    import torch
    return rank_folds(rank, workers, lambda net: torch.optim.Adam(net.parameters()))


def rank_attaches_often(rank, workers):
    """Attaches and closes a hundred models in jobs of one name. Half of them have a prefix that
    another model of the same job has used before."""
    torch, _ = begin(rank, workers)
    stays = wrapped(torch.nn.Linear(2, 1))
    first, stayed = [], None
    for count in range(100):
        net = torch.nn.Linear(3 + count, 1)
        optimizer = None if count % 2 else torch.optim.SGD(net.parameters(), 0.1)
        model = wrapped(net)
        if count == 50:
            stayed, first = attach(stays, prefix='stays/'), []
        with attach(model, optimizer=optimizer, prefix='again/' if count >= 50 else None):
            found = step(model, rank + 1)
        if count in (20, 49, 70, 99):
            harness.until(lambda: job_has(2 if stayed else 0), 'tensors are given back')
            settle(first)
    step(stays, 1)
    return found


def rank_makes_groups_anew(rank, workers):
    """Makes several default groups of the backend, one after the other."""
    first = []
    for count in range(6):
        torch, dist = begin(rank, workers, 'gradpool', f'store{count}')
        part = dist.new_group([0, 1])
        values = torch.ones(LENT)
        dist.all_reduce(values)
        dist.all_reduce(values, group=part)
        part = None
        dist.barrier()
        dist.destroy_process_group()
        gc.collect()
        if count:
            settle(first)


def rank_copies_a_model(rank, workers):
    """Copies an attached model by copy and by pickle. The copies must be plain, independent models.
    The attached model must still work."""
    torch, _ = begin(rank, workers)
    model = wrapped(torch.nn.Linear(4, 1))
    attachment = attach(model)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    copies = [copy.deepcopy(model), torch.load(file, weights_only=False)]
    attachment.close()
    return [one(torch.ones(1, 4)).shape[0] for one in copies], len(model._forward_pre_hooks)


def rank_fails_to_attach(rank, workers):
    """Checks that a failed attach() keeps no prefix."""
    torch, _ = begin(rank, workers)
    first, second = wrapped(torch.nn.Linear(4, 1)), wrapped(torch.nn.Linear(5, 1))
    attach(first, prefix='g/')
    second.register_comm_hook(None, _no_hook)
    try:
        attach(second)
    except RuntimeError:
        pass
    taken = [refusal(attach, wrapped(torch.nn.Linear(5, 1)), prefix='g/') for _ in range(2)]
    return step(first, rank + 1), taken


def _no_hook(_, bucket):
    raise AssertionError(f'bucket {bucket.index()} is nobody\'s')


def rank_drops_handles(rank, workers):
    """Drops the handles of operations. Returns the names of operations without the right result."""
    torch, dist = begin(rank, workers, 'gradpool')
    wrong = []
    for count in 1, 3, 200:
        values = [torch.full((5,), float(rank + k)) for k in range(count)]
        for one in values:
            dist.all_reduce(one, async_op=True)
        dist.barrier()
        wrong += [one.tolist() for k, one in enumerate(values) if one[0] != 2 * k + 1]
    parts, message = [torch.zeros(3) for _ in range(workers)], torch.full((7,), float(rank))
    dist.all_gather(parts, torch.full((3,), float(rank)), async_op=True)
    if rank == 0:
        dist.isend(message, 1)
    else:
        dist.irecv(message, 0)
    harness.until(lambda: parts[1][2] == 1 and message[6] == 0, 'results without a handle')
    return wrong


# ---- several groups ----

def rank_has_groups(rank, workers):
    """Trains in two halves of the ranks at the same time. A third model uses all ranks."""
    torch, dist = begin(rank, workers)
    halves = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    part = rank % 2
    half = wrapped(torch.nn.Linear(4, 2 + part), process_group=halves[part])
    whole = wrapped(torch.nn.Linear(3, 1))
    attached = [attach(half), attach(whole), attach(wrapped(torch.nn.Linear(4, 1),
                                                            process_group=halves[part]))]
    found = [(step(half, rank + 1), step(whole, rank + 1)) for _ in range(5)]
    return found[-1], [one.job.name.rsplit('.', 1)[-1] for one in attached]


# ---- unusual strides ----

def odd_tensors(torch, dtype, rank):
    """Returns tensors with unusual strides for their shapes: of one element, or with a dimension of
    one."""
    def values(count):
        return (torch.arange(1, count + 1) + rank).to(dtype)
    return [values(10).view(2, 5)[:1, 2], values(10).view(2, 5)[1:, 4:].t(), values(10)[7],
            values(12).view(3, 4)[:, 2:3], values(3).as_strided((1, 3), (7, 1)),
            values(4).as_strided((1,), (0,)), values(6).view(2, 3).t(), values(4)[:0]]


def odd_operations(dist, rank, tensor, two):
    """Runs operations on unusual strides. Returns (name, result, expected result) of each. `two`
    contains the tensors of rank 0 and 1."""
    first, second = two

    def put(operation, *arguments):
        place = tensor()
        operation(place, *arguments)
        return [place]

    def fill(operation, *arguments):
        places = [tensor(), tensor()]
        operation(places, *arguments)
        return places
    yield 'broadcast', put(dist.broadcast, 1), [second]
    yield 'all_gather', fill(dist.all_gather, tensor()), two
    yield 'scatter', put(dist.scatter, [tensor(), tensor()] if rank == 0 else None), [first]
    yield 'all_to_all', fill(dist.all_to_all, [tensor(), tensor()]), two
    yield 'send', put(*((dist.send, 1) if rank == 0 else (dist.recv, 0))), [first]
    yield 'recv from any', put(*((dist.send, 1) if rank == 0 else (dist.recv,))), [first]
    yield 'gather', fill(lambda places: dist.gather(
        tensor(), places if rank == 0 else None)), two if rank == 0 else [second] * 2
    total = [first + second]
    yield 'all_reduce', put(dist.all_reduce), total
    yield 'reduce', put(dist.reduce, 0)[:1 - rank], total[:1 - rank]
    yield 'reduce_scatter', put(dist.reduce_scatter, [tensor(), tensor()]), total
    yield 'all_reduce_coalesced', fill(dist.all_reduce_coalesced), total * 2
    if not first.is_complex():
        yield 'minimum', put(dist.all_reduce, dist.ReduceOp.MIN), [first]
    if not first.is_floating_point() and not first.is_complex():
        yield 'or', put(dist.all_reduce, dist.ReduceOp.BOR), [first | second]


def rank_has_odd_strides(rank, workers):
    """Returns the results that differ from the expected ones."""
    torch, dist = begin(rank, workers, 'gradpool')
    wrong = []
    for dtype in torch.float32, torch.bfloat16, torch.int64, torch.int16, torch.bool, torch.cfloat:
        for i, one in enumerate(odd_tensors(torch, dtype, rank)):
            two = [odd_tensors(torch, dtype, other)[i].clone() for other in range(2)]
            for name, found, wanted in odd_operations(
                    dist, rank, lambda i=i: odd_tensors(torch, dtype, rank)[i], two):
                if not all(map(torch.equal, found, wanted)):
                    wrong.append(f'{name} of {dtype} {tuple(one.shape)} {one.stride()}: {found}')
    return wrong


def rank_has_odd_parameters(rank, workers):
    """Trains a model with parameters of unusual strides. Returns its gradients."""
    torch, _ = begin(rank, workers)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.all = torch.nn.ParameterList(
                [torch.nn.Parameter(one) for one in odd_tensors(torch, torch.float32, 0)
                 if one.numel()])

        def forward(self, factor):
            return sum(one.sum() for one in self.all) * factor
    net = Net()
    model = wrapped(net, gradient_as_bucket_view=True)
    attach(model)
    for _ in range(3):
        model.zero_grad()
        model(rank + 1.0).backward()
    return [one.grad.flatten().tolist() for one in net.all]


# ---- timeouts ----

def rank_waits(rank, workers):
    """Returns the limits of models, and the error of a group with a limit of one second."""
    torch, dist = begin(rank, workers, 'gradpool', timeout=datetime.timedelta(seconds=88))
    other = dist.new_group([0, 1], backend='gloo', timeout=datetime.timedelta(seconds=99))
    models = [wrapped(torch.nn.Linear(2, 1)) for _ in range(4)]
    attached = [attach(models[0]), attach(models[1], timeout_ms=5000),
                attach(wrapped(torch.nn.Linear(2, 1), process_group=other))]
    os.environ['GRADPOOL_TIMEOUT_MS'] = '7000'
    attached.append(attach(models[2]))
    del os.environ['GRADPOOL_TIMEOUT_MS']
    limits, texts = [one._limit.ms for one in attached], []
    dist.barrier()
    # set only now, because earlier groups may need more time on a slow host
    dist.group.WORLD.timeout_s = 1
    attach(models[3])
    if rank == 0:
        try:
            step(models[3], 1)
        except RuntimeError as error:
            texts = [str(error), refusal(dist.all_reduce, torch.ones(3))]
    else:
        sys.stdin.readline()
    return limits, texts


def rank_asks_late(rank, workers):
    """Waits for an operation after its limit has passed. Returns the text of the error."""
    torch, dist = begin(rank, workers, 'gradpool', timeout=datetime.timedelta(seconds=88))
    dist.all_reduce(torch.ones(3))
    dist.group.WORLD.timeout_s = 1
    if rank == 1:
        sys.stdin.readline()
        return None
    work = dist.all_reduce(torch.ones(3), async_op=True)
    harness.until(lambda: work._left_s() < -6, 'the limit is over')
    return refusal(work.wait)


class Case(unittest.TestCase):
    def run_ranks(self, function, workers=2, start=ranks.run_ranks, **environment):
        with tempfile.TemporaryDirectory() as folder:
            return start(function, workers, TEST_STORE=folder,
                         GRADPOOL_JOB=self.id().rsplit('.', 1)[-1], **environment)

    def has_words(self, text, *words):
        for word in words:
            self.assertIn(word, text)


class UnevenInputs(Case):
    def ends_with_zeros(self, function):
        first, second = self.run_ranks(function)
        self.assertEqual(first, [[], [1.5], [1.5, 1.5], [1.5, 0.5, 0.5]])
        self.assertEqual(second, [[1, 1], [1.5, 1, 1, 1], [1.5, 1.5], [1.5]])

    def test_a_rank_that_has_joined_brings_zeros_to_views_of_buckets(self):
        self.ends_with_zeros('rank_runs_out_of_views')

    def test_a_rank_that_has_joined_brings_zeros_to_copies_of_buckets(self):
        self.ends_with_zeros('rank_runs_out_of_copies')

    def test_an_unsupported_join_is_refused_when_it_is_created(self):
        for stepped, divided, disabled in self.run_ranks('rank_joins_otherwise'):
            self.has_words(stepped, 'optimizer', 'Attach the model without')
            for text in divided:
                self.has_words(text, 'divide_by_initial_world_size', 'Leave the option out')
            self.assertEqual(disabled, 'nothing was raised')


class SparseGradients(Case):
    def has_rows(self, backend):
        for found in self.run_ranks('rank_embeds', TEST_BACKEND=backend):
            for (*_, wanted), of_step in zip(EMBEDDED, found):
                self.assertEqual(list(of_step), [str(row) for row in wanted])
                for row, total in wanted.items():
                    self.assertAlmostEqual(of_step[str(row)], total, places=4)

    def test_sparse_gradients_of_an_attached_model_are_averaged_row_by_row(self):
        self.has_rows('gloo')

    def test_sparse_gradients_of_a_model_on_the_backend_are_averaged_row_by_row(self):
        self.has_rows('gradpool')

    def test_sparse_tensors_of_all_dtypes_have_the_rows_of_all_ranks(self):
        for found, single, zeros in self.run_ranks('rank_reduces_sparse'):
            self.assertEqual(found, [sorted(map(str, wanted)) for *_, wanted in EMBEDDED] * 5)
            self.assertEqual(single, [[0, 1], [1, 1]])
            self.assertEqual(zeros, {'0': 0, '1': 0})

    def test_a_weight_of_a_layer_and_a_sparse_embedding_is_averaged(self):
        rows = [6 + 4 * 10 * 0.5, 6 + 4 * 10 * 1.0] + 8 * [6.0]
        self.assertEqual(self.run_ranks('rank_ties'), 2 * [[rows, 6 * [1.5]]])

    def test_sparse_gradients_with_codecs_or_an_optimizer_are_refused(self):
        for texts in self.run_ranks('rank_embeds_otherwise'):
            for text in texts:
                self.has_words(text, 'sparse gradients', 'sparse=False')


class Dropped(Case):
    def forgets(self, function):
        self.assertEqual(self.run_ranks(function), [0, 0])

    def test_a_dropped_model_leaves_nothing(self):
        self.forgets('rank_folds')

    def test_a_dropped_model_with_an_optimizer_leaves_nothing(self):
        self.forgets('rank_folds_with_an_optimizer')

    def test_a_hundred_closed_models_leave_nothing(self):
        self.assertEqual(self.run_ranks('rank_attaches_often'), [1.5, 1.5])

    def test_groups_that_are_destroyed_and_made_again_leave_nothing(self):
        self.run_ranks('rank_makes_groups_anew')

    def test_copies_of_an_attached_model_are_models_of_their_own(self):
        for copies, hooks in self.run_ranks('rank_copies_a_model'):
            self.assertEqual((copies, hooks), ([1, 1], 0))

    def test_an_attach_that_fails_takes_no_prefix_of_another_model(self):
        for gradient, taken in self.run_ranks('rank_fails_to_attach'):
            self.assertEqual(gradient, 1.5)
            for text in taken:
                self.has_words(text, "prefix 'g/'")

    def test_operations_whose_handle_was_dropped_complete_in_place(self):
        self.assertEqual(self.run_ranks('rank_drops_handles'), [[], []])


class Groups(Case):
    def test_models_of_several_groups_of_ranks_train_at_once(self):
        for rank, ((half, whole), names) in enumerate(self.run_ranks('rank_has_groups', 4)):
            self.assertEqual((half, whole), (2 + rank % 2, 2.5))
            own = ('0,2', '1,3')[rank % 2]
            self.assertEqual(names, [own, self.id().rsplit('.', 1)[-1], own])


class OddStrides(Case):
    def test_tensors_of_one_element_or_with_a_dimension_of_one_are_taken(self):
        self.assertEqual(self.run_ranks('rank_has_odd_strides'), [[], []])

    def test_parameters_of_one_element_or_with_a_dimension_of_one_are_averaged(self):
        for found in self.run_ranks('rank_has_odd_parameters'):
            self.assertEqual({value for one in found for value in one}, {1.5})


class TimeOuts(Case):
    def test_limits_of_process_groups_count_and_are_named(self):
        (limits, texts), (others, _) = self.run_ranks('rank_waits', start=release_rank_1)
        self.assertEqual([limits, others], [[88000, 5000, 99000, 7000]] * 2)
        self.assertEqual(len(texts), 2)
        for text in texts:
            self.has_words(text, 'rank 1', 'raise init_process_group(timeout=)', 'now 1 s')

    def test_a_deadline_that_passed_before_the_first_wait_is_named(self):
        text, _ = self.run_ranks('rank_asks_late', start=release_rank_1)
        self.has_words(text, 'rank 1', 'raise init_process_group(timeout=)', 'now 1 s')


def release_rank_1(function, workers, **environment):
    """Starts the ranks. Ends rank 1 when rank 0 has its results."""
    environment['GRADPOOL_TIMEOUT_MS'] = ''
    processes = ranks.start_ranks(function, workers, **environment)
    found = ranks.finish_ranks(processes[:1])
    processes[1].stdin.write('\n')
    return [*found, *ranks.finish_ranks(processes[1:])]


if __name__ == '__main__':
    ranks.main(globals(), forks=True)
