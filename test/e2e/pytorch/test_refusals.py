"""Scripts of one, two and three ranks provoke errors of the backend, of attach() and of Horovod's
calls. The tests check the words of these errors."""
import copy
import datetime
import errno
import os
import pathlib
import tempfile
import types
import warnings
from unittest import mock

import harness
import python_case
import ranks
import torch_door_calls
from python_case import setUpModule, tearDownModule  # noqa: F401

SOON = datetime.timedelta(seconds=2)
# deadline of a barrier that two of three ranks reach, also if one of them is late on a busy host
BARRIER = datetime.timedelta(seconds=8)


def text_of(call, *arguments):
    """Returns the text of the call's error."""
    try:
        call(*arguments)
    except Exception as error:
        return str(error)
    return 'no error'


def begin(rank, workers):
    """Makes a process group of the backend. Returns torch and torch.distributed."""
    import torch
    import torch.distributed as dist
    import gradpool.distributed  # noqa: F401 (registers the backend)
    torch.set_num_threads(1)
    store = dist.FileStore(os.path.join(os.environ['TEST_FOLDER'], 'store'), workers)
    dist.init_process_group('gradpool', rank=rank, world_size=workers, store=store)
    return torch, dist


# ---- attach() ----

class Model:
    """A model, by default of one layer, and the calls of a script."""

    def __init__(self, torch, net=None, prefix=None):
        self.torch, self.prefix = torch, prefix
        self.net = torch.nn.Linear(4, 2) if net is None else net
        self.model = torch.nn.parallel.DistributedDataParallel(self.net)
        self.optimizer = torch.optim.Adam(self.net.parameters(), 0.1)

    def attach(self, steps=False, **options):
        import gradpool.ddp
        given = {'optimizer': self.optimizer, **options} if steps else options
        self.attachment = gradpool.ddp.attach(self.model, prefix=self.prefix, **given)
        return self.attachment

    def train(self):
        self.optimizer.zero_grad()
        self.model(self.torch.ones(3, self.net.in_features)).sum().backward()
        self.optimizer.step()


def same_prefix_twice(of):
    both = [Model(of.torch, prefix='same/') for _ in range(2)]
    for one in both:
        one.attach(job=of.job)


def another_size_than_declared(of):
    """Uses a made-up bucket, because present releases of DDP themselves refuse gradients of
    another size."""
    from gradpool._model import buckets
    bucket = types.SimpleNamespace(gradients=lambda: [of.torch.ones(7)])
    buckets.parts_of(bucket, [types.SimpleNamespace(name='weight', elements=8)])


def codec_and_optimizer(of):
    from gradpool import codecs
    of.attach(True, compression=codecs.OneBit())


def rows(of):
    return Model(of.torch, of.torch.nn.Embedding(3, 2, sparse=True))


def codec_of_rows(of):
    from gradpool import codecs
    rows(of).attach(compression=codecs.OneBit())


def rows_and_optimizer(of):
    rows(of).attach(True)


def columns_first(of):
    of.net.weight.data = of.torch.ones(4, 2).t()
    of.attach(True)


def columns_first_after_a_step(of):
    of.attach(True)
    of.train()
    of.net.weight.data = of.torch.ones(4, 2).t()
    of.train()


def restore_of_an_optimizer_of_the_script(of):
    of.attach().restore('nowhere')


def backward_after_close(of):
    of.attach().close()
    of.train()


def push_of_a_copy(of):
    copy.copy(of.attach()).push(None)


def half_a_state(of):
    of.attach(True)
    of.train()
    saved = of.optimizer.state_dict()
    del saved['state'][0]['exp_avg']
    of.optimizer.load_state_dict(saved)
    of.train()


def another_size_of_a_group(of):
    other = types.SimpleNamespace(size=lambda: 2, rank=lambda: 1)
    from gradpool._process import membership
    of.attach(job='of one')
    membership.join('of one', None, other.rank(), other.size())


MODELS = {
    same_prefix_twice: "with prefix 'same/': give each model its own prefix",
    another_size_than_declared: 'elements, declared were 8: change a model before attach()',
    codec_and_optimizer: 'attach() with an optimizer and compression: lanes cannot step with '
                         'compressed gradients; leave one of the two out',
    codec_of_rows: ' has sparse gradients, codecs take dense ones: set sparse=False, or attach',
    rows_and_optimizer: " has sparse gradients, the service's rules need dense ones",
    columns_first: 'is not contiguous; lanes step contiguous ones: leave its memory format',
    columns_first_after_a_step: 'is not contiguous any more; lanes step contiguous ones',
    restore_of_an_optimizer_of_the_script: 'restore() of a model whose script makes the steps',
    backward_after_close: ': backward() of a model whose attachment has been closed; make another',
    push_of_a_copy: 'the model is a copy of an attached model: attach() the copy, too',
    half_a_state: "the optimizer's state has no 'exp_avg' of 8 elements for a parameter that has "
                  'made steps',
    another_size_of_a_group: 'has another model of this process, but the process group of this one '
                             'says rank 1 of 2'}


def rank_attaches(rank, workers):
    """Returns {name: text} of all calls, each with a model of its own."""
    torch, _ = begin(rank, workers)
    import gradpool
    found = {}
    with gradpool.connect() as client, client.join('models', 0, 1) as job:
        for call in MODELS:
            of = Model(torch)
            of.job = job
            found[call.__name__] = text_of(call, of)
    return found


# ---- a process group ----

def two_tensors_of_one_rank(of):
    of.dist.group.WORLD.send([of.torch.ones(2)] * 2, 0, 0)


def gather_into_three(of):
    of.dist.all_gather([of.torch.ones(2) for _ in range(3)], of.torch.ones(2))


def rows_to_all(of):
    of.dist.broadcast(of.torch.ones(2, 2).to_sparse(), 0)


GROUP = {
    two_tensors_of_one_rank: '2 tensors, expected one: a process has one rank in a group',
    gather_into_three: 'all_gather: 3 tensors for a group of 1',
    rows_to_all: 'a tensor of layout torch.sparse_coo; call to_dense() first'}


def rank_calls_its_group(rank, workers):
    torch, dist = begin(rank, workers)
    of = types.SimpleNamespace(torch=torch, dist=dist)
    return {call.__name__: text_of(call, of) for call in GROUP}


def rank_finds_no_job(rank, workers):
    """Only rank 1 creates the process group."""
    import torch.distributed as dist
    import gradpool.distributed  # noqa: F401 (registers the backend)
    return text_of(lambda: dist.init_process_group(
        'gradpool', rank=1, world_size=2, store=dist.HashStore(), timeout=SOON))


def rank_waits_for_others(rank, workers):
    """Rank 0 waits for messages that no rank sends, then ranks 0 and 2 wait for rank 1 in a
    barrier. Returns the texts of the errors."""
    torch, dist = begin(rank, workers)
    over = pathlib.Path(os.environ['TEST_FOLDER'], 'over')
    patient = dist.new_group()      # long timeout: rank 0 answers after the barrier's deadline
    groups = [dist.new_group(timeout=SOON) for _ in range(3)]
    for group in groups:
        group.timeout_s = SOON.total_seconds()
    if rank == 1:       # runs until the other ranks have received their errors
        harness.until(lambda: over.exists(), 'the errors of rank 0')
        return []
    found = [text_of(dist.monitored_barrier, patient, BARRIER)]
    if rank == 0:
        work = dist.irecv(torch.ones(2), group=groups[0])
        found += [text_of(work.wait, datetime.timedelta(milliseconds=10)), text_of(work.wait)]
        found.append(text_of(dist.send, torch.ones(2), 1, groups[1]))
        found.append(text_of(dist.recv, torch.ones(2), 1, groups[2]))
        over.touch()
    return found


# ---- Horovod ----

def wrapped(of, op=None, **options):
    """Returns (a layer with new names, its distributed optimizer)."""
    of.layers += 1
    net = of.torch.nn.Linear(64, 64)
    names = [(f'{of.layers}.{name}', one) for name, one in net.named_parameters()]
    if op is not None:
        options['op'] = op
    return net, of.hvd.DistributedOptimizer(of.torch.optim.SGD(net.parameters(), 0.1), names,
                                            **options)


def backward(of, net):
    net(of.torch.ones(1, 64)).sum().backward()


def trains(of, **options):
    net, optimizer = wrapped(of, **options)
    backward(of, net)
    optimizer.step()


def the_same_ranks_twice(of):
    of.hvd.add_process_set(list(range(of.workers)))


def set_that_is_not_known(of):
    of.hvd.ProcessSet([0]).size()


def scalar_to_all(of):
    of.hvd.alltoall(of.torch.tensor(1.0))


def codec_of_a_maximum(of):
    trains(of, op=of.hvd.Max, compression=of.hvd.Compression.onebit(0))


def codec_and_predivision(of):
    trains(of, op=of.hvd.Average, compression=of.hvd.Compression.onebit(0),
           gradient_predivide_factor=2.0)


def step_without_waiting(of):
    net, optimizer = wrapped(of)
    backward(of, net)
    try:
        with optimizer.skip_synchronize():
            optimizer.step()
    finally:
        optimizer.synchronize()


def wrapped_on_the_way(of):
    net, optimizer = wrapped(of)
    backward(of, net)
    try:
        of.hvd.DistributedOptimizer(of.torch.optim.SGD(net.parameters(), 0.1))
    finally:
        optimizer.synchronize()


def gradients_altered(of):
    net, optimizer = wrapped(of)
    backward(of, net)
    for one in net.parameters():
        one.grad.mul_(2)
    optimizer.synchronize()


def gradient_altered(of):
    net, optimizer = wrapped(of)
    backward(of, net)
    net.bias.grad.mul_(2)
    optimizer.synchronize()


def behind_another_of_the_name(of):
    from gradpool.torch._operations.sequences import NamedOperation
    sequence = of.hvd.global_process_set.sequences().of('queued')
    NamedOperation(sequence, types.SimpleNamespace(kind='allreduce', text=''))._pass(0)


def synchronized_twice(of):
    net, optimizer = wrapped(of)
    backward(of, net)
    optimizer.synchronize()
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        optimizer.step()


HOROVOD = {
    the_same_ranks_twice: ': a process set has these ranks already: ',
    set_that_is_not_known: ': the process set is unknown; call init() first',
    scalar_to_all: ' among 1 ranks: its rows cannot be dealt evenly; give splits',
    codec_of_a_maximum: ' of compressed gradients: expected Average or Sum',
    codec_and_predivision: 'gradient_predivide_factor with a codec: leave it out',
    step_without_waiting: 'step() under skip_synchronize() after backward()',
    wrapped_on_the_way: ', whose gradient is on its way for another optimizer: call it after',
    gradients_altered: "gradients of 2 parameters, such as '5.bias', were changed",
    gradient_altered: "the gradient of '6.bias' was changed after backward()",
    behind_another_of_the_name: 'an earlier operation of that name is not over',
    synchronized_twice: 'step() after synchronize() does not wait for gradients'}


def rank_calls_horovod(rank, workers):
    of = torch_door_calls.Rank(rank, workers)
    of.layers = 0
    return {call.__name__: text_of(call, of) for call in HOROVOD}


# ---- ranks of Horovod that differ ----

def only_the_other_rank(of):
    of.hvd.allreduce(of.torch.ones(4), process_set=of.others[1 - of.rank])


def one_value_of_a_channel(of):
    of.hvd.SyncBatchNorm(4)(of.torch.ones(1 - of.rank, 4))


def other_factors(of):
    of.hvd.allreduce(of.torch.ones(4), op=of.hvd.Sum, prescale_factor=1 + of.rank)


def other_dimensions(of):
    values = of.torch.ones(2, 3, 2).to_sparse(2) if of.rank else of.torch.ones(2, 3).to_sparse(2)
    of.hvd.allreduce(values, name='dimensions')


def uneven_rows_to_all(of):
    of.hvd.alltoall(of.torch.ones(3, 2))


def other_codecs(of):
    of.layers = 100
    kinds = of.hvd.Compression.onebit(0), of.hvd.Compression.topk(0.5, 0)
    trains(of, compression=kinds[of.rank])


def thawed_here_alone(of):
    of.layers = 200
    net, optimizer = wrapped(of)
    net.bias.requires_grad_(False)
    for _ in range(2):
        backward(of, net)
        optimizer.step()
        net.bias.requires_grad_(of.rank == 0)


DIFFERENT = {
    only_the_other_rank: 'is not in this process set',
    one_value_of_a_channel: '1 values of a channel on all ranks together, expected 2 or more',
    other_factors: 'allreduce (Sum) of float32[4], times 2 and 1',
    uneven_rows_to_all: ' among 2 ranks: its rows cannot be dealt evenly; give splits',
    other_dimensions: ', 2 of its dimensions sparse',
    other_codecs: 'allreduce (Average) of float32[64] as OneBit(',
    thawed_here_alone: '(parameters thawed or added)'}


def rank_differs(rank, workers):
    of = torch_door_calls.Rank(rank, workers)
    of.others = [of.hvd.add_process_set([one]) for one in range(workers)]
    return {call.__name__: text_of(call, of) for call in DIFFERENT}


class Refusals(python_case.Case):
    def run_ranks(self, function, workers=1, **environment):
        with tempfile.TemporaryDirectory(prefix='gradpool-refusals-') as folder:
            return ranks.run_ranks(function, workers, GRADPOOL_JOB=function, TEST_FOLDER=folder,
                                   **environment)

    def check(self, table, found):
        for call, words in table.items():
            with self.subTest(call.__name__):
                self.assertIn(words, found[call.__name__])

    def test_models_that_cannot_be_attached_or_stepped_get_the_right_words(self):
        self.check(MODELS, *self.run_ranks('rank_attaches'))

    def test_an_operation_behind_another_one_is_overdue_without_a_round(self):
        from gradpool._group.operations import Operation, Part
        tensor = types.SimpleNamespace(name='w')
        group = types.SimpleNamespace(timeout_s=0, open=set(), failure=None, fail=lambda _: None)
        part = Part(types.SimpleNamespace(tensor=tensor, parts=[]), None)
        operation = Operation(group, 'all_reduce', [part])
        operation._settle(0)
        self.assertIn("all_reduce: tensor 'w': an earlier operation is not over",
                      str(operation.exception()))

    def test_a_backend_without_a_timeout_leaves_two_settings(self):
        import gradpool
        from gradpool._model.groups import Limit
        told = Limit(0, types.SimpleNamespace()).told(gradpool.Timeout(errno.ETIMEDOUT, 'late'))
        self.assertIn('raise attach(timeout_ms=) or GRADPOOL_TIMEOUT_MS, now ', str(told))

    def test_a_job_that_can_lend_no_more_memory_copies_and_logs_once(self):
        import gradpool
        import torch
        from gradpool._tensors.carriers import lent
        full = gradpool.GradpoolError(errno.ENOMEM, 'no room')
        with gradpool.connect() as client, client.join('full', 0, 1) as job, \
                mock.patch.object(job, 'alloc', side_effect=full), \
                self.assertLogs('gradpool', 'INFO') as logged:
            self.assertEqual([lent(job, 4, torch.float32) for _ in range(2)], [None, None])
        self.assertEqual(len(logged.output), 1)
        self.assertIn('; tensors outside of lent memory are copied', logged.output[0])

    def test_wrong_calls_of_a_group_get_the_right_words(self):
        self.check(GROUP, *self.run_ranks('rank_calls_its_group'))

    def test_a_job_that_rank_0_does_not_name_is_an_error(self):
        self.assertIn('rank 0 of the group has not named the job in 2 s (key ',
                      *self.run_ranks('rank_finds_no_job'))

    def test_waits_that_are_too_long_name_the_operation_and_the_setting(self):
        (watcher, soon, any_source, send, receive), _, late = self.run_ranks(
            'rank_waits_for_others', 3)
        for text, *words in (
                (soon, ': not over within 0.01 s'),
                (any_source, 'no message arrived from ranks (1, 2)'),
                (send, 'send to rank 1 of 2 float32 in process group'),
                (receive, 'recv from rank 1 of 2 float32 in process group',
                 '. The timeout of the wait is over: look at the ranks that are missing, or raise'),
                (watcher, 'Rank 1 failed to pass monitoredBarrier in 8000 ms: '),
                (*late, 'Rank 2 successfully reached monitoredBarrier, but received errors while '
                 'waiting for send/recv from rank 0: ', 'Rank 1 failed to pass it')):
            for word in words:
                self.assertIn(word, text)

    def test_wrong_calls_of_horovod_get_the_right_words(self):
        self.check(HOROVOD, *self.run_ranks('rank_calls_horovod'))

    def test_ranks_of_horovod_that_differ_get_the_right_words(self):
        one, other = self.run_ranks('rank_differs', 2, GRADPOOL_TIMEOUT_MS='10000')
        self.check(DIFFERENT, one)
        self.assertEqual(other.pop(thawed_here_alone.__name__), 'no error')
        self.check({call: words for call, words in DIFFERENT.items()
                    if call is not thawed_here_alone}, other)


if __name__ == '__main__':
    ranks.main(globals(), forks=True)
