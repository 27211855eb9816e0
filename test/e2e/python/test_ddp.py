"""Tests gradpool.ddp with DistributedDataParallel models on a real service. Each rank is a
process."""
import hashlib
import os
import pathlib
import sys
import tempfile
import unittest
import unittest.mock

import harness
import ranks

STEPS = 6
ATTEMPTS = 4
FIRST_BUCKET_BYTES = 1024   # with DDP's default size one bucket would contain the whole model
service = None


def setUpModule():
    global service
    service = harness.Service()
    os.environ['GRADPOOL_ENDPOINT'] = service.endpoint


def tearDownModule():
    service.end()


class Rank:
    """Model, data and optimizer of a rank's function. The test sets the names of folders and
    jobs."""

    @property
    def device(self):
        return os.environ.get('TEST_DEVICE', 'cpu')

    def __init__(self, rank, workers, **options):
        import torch
        import torch.distributed
        self.torch, self.rank, self.workers = torch, rank, workers
        torch.set_num_threads(1)
        torch.distributed.init_process_group(os.environ.get('TEST_BACKEND', 'gloo'), rank=rank,
                                             init_method='file://' + os.environ['TEST_STORE'],
                                             world_size=workers)
        torch.manual_seed(1)
        torch.distributed._DEFAULT_FIRST_BUCKET_BYTES = FIRST_BUCKET_BYTES
        self.net = self.make_net()
        self.model = torch.nn.parallel.DistributedDataParallel(
            self.net, broadcast_buffers=False, bucket_cap_mb=0.02, **options)
        self.optimizer = torch.optim.SGD(self.net.parameters(), 0.05, momentum=0.9)
        self.generator = torch.Generator().manual_seed(100 + rank)

    @classmethod
    def beside(cls, rank, workers, **options):
        """Returns a second model in the same process."""
        import torch.distributed
        with unittest.mock.patch.object(torch.distributed, 'init_process_group'):
            return cls(rank, workers, **options)

    def make_net(self):
        nn = self.torch.nn
        return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(),
                             nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)).to(self.device)

    def batch(self):
        return self.torch.randn(8, 16, generator=self.generator).to(self.device)

    def step(self, batch):
        self.optimizer.zero_grad(set_to_none=True)
        self.model(batch).square().mean().backward()
        self.optimizer.step()

    def digest(self):
        return hashlib.sha256(b''.join(p.detach().cpu().numpy().tobytes()
                                       for p in self.net.parameters())).hexdigest()


def attach(trainer, **options):
    import gradpool
    return gradpool.ddp.attach(trainer.model, **options)


def sgd(torch, net):
    return torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)


def mean_in_rank_order(_, gradients):
    first, *others = gradients
    total = sum(others, first)
    return total / total.new_full(total.shape, len(gradients))


def train_alone(workers, optimizer_of=sgd, schedule_of=None, mean_of=mean_in_rank_order):
    """Trains STEPS steps in one process. mean_of(name of a parameter, gradients of all ranks)
    computes each mean. Returns the Rank."""
    class Alone(Rank):
        def __init__(self, rank):
            import torch
            self.torch, self.rank = torch, rank
            torch.manual_seed(1)
            self.model = self.net = self.make_net()
            self.generator = torch.Generator().manual_seed(100 + rank)

    import torch
    torch.set_num_threads(1)
    each = [Alone(rank) for rank in range(workers)]
    net = each[0].net
    optimizer = optimizer_of(torch, net)
    schedule = schedule_of(torch, optimizer) if schedule_of else None
    for _ in range(STEPS):
        shares = []
        for one in each:
            net.zero_grad(set_to_none=True)
            net(one.batch()).square().mean().backward()
            shares.append([p.grad for p in net.parameters()])
        for (name, parameter), *gradients in zip(net.named_parameters(), *shares):
            parameter.grad = mean_of(name, gradients)
        optimizer.step()
        if schedule:
            schedule.step()
    return each[0]


def alone(workers):
    return train_alone(workers).digest()


def reference(workers):
    return ranks.apart(alone, workers)


def train(trainer):
    for _ in range(STEPS):
        trainer.step(trainer.batch())
    return trainer.digest()


def rank_trains(rank, workers):
    trainer = Rank(rank, workers)
    attachment = attach(trainer)
    layouts = set()
    for _ in range(STEPS):
        trainer.step(trainer.batch())
        layouts.add(tuple(len(ids) for (_, ids), _ in attachment._buckets.values()))
    return {'digest': trainer.digest(), 'layouts': len(layouts)}


def rank_trains_on_views(rank, workers):
    trainer = Rank(rank, workers, gradient_as_bucket_view=True)
    attach(trainer)
    return train(trainer)


def rank_lends_buckets(rank, workers, are_views):
    """Trains with gradients long enough for shared memory, in one bucket. `places` has three
    addresses of the long tensor for each step: those of `.grad`, of the gradient that is sent, and
    of the result."""
    class Wide(Rank):
        def make_net(self):
            nn = self.torch.nn
            return nn.Sequential(nn.Linear(16, 2048), nn.ReLU(), nn.Linear(2048, 4))
    trainer = Wide(rank, workers, gradient_as_bucket_view=are_views)
    attachment = attach(trainer)
    push_items, places = attachment.job.push_items, []
    handle = attachment.job._tensors['0.weight'].handle

    def note(tensors, items, *arguments):
        places.extend((trainer.net[0].weight.grad.data_ptr(), item.gradient, item.result)
                      for item in items if item.tensor == handle)
        return push_items(tensors, items, *arguments)
    attachment.job.push_items = note
    for step in range(STEPS):
        trainer.optimizer.zero_grad(set_to_none=step == 4)
        if step == 3:
            with trainer.model.no_sync():
                trainer.model(trainer.batch()).square().mean().backward()
        trainer.model(trainer.batch()).square().mean().backward()
        trainer.optimizer.step()
    del attachment.job.push_items
    attachment.close()
    # the gradient is read after the job has ended
    gradient = trainer.net[0].weight.grad.flatten()
    return places, trainer.digest(), hashlib.sha256(gradient.numpy().tobytes()).hexdigest()


def rank_lends_views(rank, workers):
    return rank_lends_buckets(rank, workers, True)


def rank_lends_landing(rank, workers):
    return rank_lends_buckets(rank, workers, False)


def rank_trains_in_a_joined_job(rank, workers):
    import gradpool
    trainer = Rank(rank, workers)
    with gradpool.connect() as client, client.join('joined', rank, workers) as job:
        with attach(trainer, job=job):
            digest = train(trainer)
        job.barrier()
    return digest


def rank_accumulates(rank, workers):
    """Makes two backward passes in each step. Only the second pass communicates."""
    trainer = Rank(rank, workers)
    attach(trainer)
    for _ in range(STEPS):
        with trainer.model.no_sync():
            trainer.model(trainer.batch()).square().mean().backward()
        trainer.model(trainer.batch()).square().mean().backward()
        trainer.optimizer.step()
        trainer.optimizer.zero_grad(set_to_none=True)
    return trainer.digest()


def rank_skips_a_branch(rank, workers, **options):
    """Each rank skips a different layer in each step."""
    class Branches(Rank):
        def make_net(self):
            nn = self.torch.nn

            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.trunk = nn.Linear(16, 2000)
                    self.ways = nn.ModuleList(nn.Linear(2000, 10) for _ in range(3))
                    self.way = 0

                def forward(self, x):
                    return self.ways[self.way](self.trunk(x))
            return Net()
    trainer = Branches(rank, workers, find_unused_parameters=True, **options)
    attach(trainer)
    for step in range(STEPS):
        trainer.net.way = (rank + step) % 3
        trainer.step(trainer.batch())
    return trainer.digest()


def rank_skips_a_branch_of_views(rank, workers):
    return rank_skips_a_branch(rank, workers, gradient_as_bucket_view=True)


def load_and_train(rank, workers, context):
    trainer = Rank(rank, workers)
    attach(trainer)
    data = trainer.torch.utils.data.TensorDataset(trainer.torch.randn(
        64, 16, generator=trainer.generator))
    loader = trainer.torch.utils.data.DataLoader(data, batch_size=8, num_workers=2,
                                                 multiprocessing_context=context)
    for _ in range(2):
        for batch, in loader:
            trainer.step(batch)
    return trainer.digest()


def rank_loads_with_fork(rank, workers):
    return load_and_train(rank, workers, 'fork')


def rank_loads_with_spawn(rank, workers):
    return load_and_train(rank, workers, 'spawn')


def rank_forks(rank, workers):
    """Checks that a forked child may not push. The parent continues."""
    import gradpool
    trainer = Rank(rank, workers)
    attachment = attach(trainer)
    trainer.step(trainer.batch())
    child = os.fork()
    if child == 0:
        try:
            attachment.job.barrier()
        except gradpool.Forked:
            attachment.close()
            os._exit(7)
        os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    trainer.step(trainer.batch())
    return [code, trainer.digest()]


def rank_loses_the_other(rank, workers):
    """Rank 1 ends when both ranks have made two steps. Rank 0 returns the errors of backward(),
    forward() and check()."""
    trainer = Rank(rank, workers)
    attachment = attach(trainer)
    for _ in range(2):
        trainer.step(trainer.batch())
    stepped = pathlib.Path(os.environ['TEST_STORE'] + '.stepped')
    if rank == 1:
        harness.until(stepped.exists, 'rank 0 has made two steps')
        os._exit(0)
    stepped.touch()
    found = []
    for attempt in (lambda: trainer.model(trainer.batch()).sum().backward(),
                    lambda: trainer.model(trainer.batch()), attachment.check):
        try:
            attempt()
        except Exception as error:
            found.append([type(error).__name__, str(error)])
    return found


def rank_times_out(rank, workers):
    """Rank 1 stops without ending, after both ranks have built DDP's new buckets."""
    trainer = Rank(rank, workers)
    attachment = attach(trainer, timeout_ms=ranks.RANK_TIMEOUT_S * 1000)
    for _ in range(2):
        trainer.step(trainer.batch())
    attachment._limit.ms = 2000     # the first steps may take longer on a busy host
    if rank == 1:
        sys.stdin.readline()
        return ''
    try:
        trainer.step(trainer.batch())
    except RuntimeError as error:
        return str(error)
    return 'no error'


def rank_has_another_model(rank, workers):
    """Uses equal names with different sizes, which DDP does not detect."""
    import gradpool

    class Other(Rank):
        def make_net(self):
            return self.torch.nn.Linear(16, 4 + rank)
    import torch.distributed
    torch.distributed._verify_params_across_processes = lambda *_: None
    torch.nn.parallel.distributed._verify_param_shape_across_processes = lambda *_: None
    torch.nn.parallel.distributed._sync_module_states = lambda *_, **__: None
    trainer = Other(rank, workers)
    try:
        attach(trainer)
        for _ in range(2):
            trainer.step(trainer.batch())
    except (gradpool.GradpoolError, RuntimeError) as error:
        return str(error)
    return 'no error'


def rank_is_refused(rank, workers):
    """Returns the errors of attach() for a plain module, for two equal models, for a second hook,
    and without a job name."""
    import gradpool
    trainer = Rank(rank, workers)
    torch = trainer.torch
    double = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2).double())
    os.environ.pop('GRADPOOL_JOB')
    attempts = [lambda: gradpool.ddp.attach(trainer.net, 'j'),
                lambda: gradpool.ddp.attach(double, 'j'),
                lambda: gradpool.ddp.attach(trainer.model)]
    found = []
    for attempt in attempts:
        try:
            attempt()
        except gradpool.Mismatch as error:
            found.append(str(error))
    gradpool.ddp.attach(trainer.model, 'refused').close()
    return found


def rank_trains_a_gan(rank, workers):
    """Trains two models in one script, like a GAN. Each has its own gradients, and both use one
    job. Returns the digests, the names of the tensors, and how often this rank has joined the
    job."""
    both = [Rank(rank, workers), Rank.beside(rank, workers)]
    attached = [attach(trainer) for trainer in both]
    digests = [train(trainer) for trainer in both]
    names = sorted(name for name in attached[0].job._tensors if ' more (bucket ' not in name)
    attached[0].close()
    digests.append(train(both[1]))      # the other attachment still uses this job
    attached[1].close()
    return digests, names, attached[0].job is attached[1].job


def rank_names_its_models(rank, workers):
    """Tests prefixes chosen by the script, a prefix in use, and a job that the script has joined by
    name."""
    import gradpool
    first, second = Rank(rank, workers), Rank.beside(rank, workers)
    found = []
    with attach(first, prefix='g/') as attachment:
        names = sorted(attachment.job._tensors)
        for attempt in (lambda: attach(second, prefix='g/'),
                        lambda: gradpool.connect().join(os.environ['GRADPOOL_JOB'], rank, workers)):
            try:
                attempt()
            except gradpool.GradpoolError as error:
                found.append(str(error))
    with gradpool.connect() as client:
        job = client.join('by-hand', rank, workers)
        try:
            attach(second, job='by-hand')
        except gradpool.GradpoolError as error:
            found.append(str(error))
        with attach(second, job=job):
            return found, names, train(second)


class Case(unittest.TestCase):
    """Tests in which each rank runs in a process, with its own job."""

    def run_ranks(self, function, workers=2, start=ranks.run_ranks, attempt='', **environment):
        with tempfile.TemporaryDirectory() as folder:
            return start(function, workers, TEST_STORE=folder + '/store',
                         GRADPOOL_JOB=self.id().rsplit('.', 1)[-1] + attempt, **environment)

    def all_equal(self, digests):
        self.assertEqual(len(set(digests)), 1, digests)
        return digests[0]


class Ddp(Case):
    def test_parameters_equal_a_one_process_reference_across_the_bucket_rebuild(self):
        found = self.run_ranks('rank_trains', 3)
        self.assertEqual(self.all_equal([f['digest'] for f in found]), reference(3))
        self.assertTrue(all(f['layouts'] > 1 for f in found), 'DDP built no new buckets')

    def test_gradients_that_are_views_of_buckets_give_the_same_bits(self):
        self.assertEqual(self.all_equal(self.run_ranks('rank_trains_on_views')), reference(2))

    def test_gradients_in_lent_memory_are_not_copied_and_give_the_same_bits(self):
        views, landing = self.run_ranks('rank_lends_views'), self.run_ranks('rank_lends_landing')
        self.assertEqual(len({tuple(told) for _, *told in views + landing}), 1)
        for places, *_ in views:  # .grad is the memory that was sent; two addresses alternate
            for (grad, gradient, result), (_, before, after) in zip(places[2:], places[1:]):
                self.assertEqual(grad, gradient)
                self.assertEqual({gradient, result}, {before, after})
        for places, *_ in landing:
            self.assertTrue(all(gradient != result for _, gradient, result in places))

    def test_a_job_that_the_script_joined_gives_the_same_bits(self):
        self.assertEqual(self.all_equal(self.run_ranks('rank_trains_in_a_joined_job')),
                         reference(2))

    def test_two_models_of_one_script_share_its_job(self):
        found = self.run_ranks('rank_trains_a_gan')
        first, second, later = (self.all_equal(digests)
                                for digests in zip(*(digests for digests, *_ in found)))
        self.assertEqual([first, second], [reference(2)] * 2)
        self.assertNotEqual(later, second)
        for _, names, is_one_job in found:
            self.assertTrue(is_one_job)
            self.assertEqual(len(names), 16)
            self.assertLessEqual({'0.weight', 'model2/0.weight'}, set(names))

    def test_models_may_be_given_prefixes_and_jobs(self):
        found = self.run_ranks('rank_names_its_models')
        for (taken, joined, by_hand), names, _ in found:
            self.assertTrue(all(name.startswith('g/') for name in names), names)
            self.assertIn("prefix 'g/'", taken)
            self.assertIn('is taken', joined)
            self.assertIn('attach(model, job=...)', by_hand)
        self.assertEqual(self.all_equal([digest for *_, digest in found]), reference(2))

    def test_no_sync_accumulates(self):
        self.all_equal(self.run_ranks('rank_accumulates'))

    def test_an_unused_parameter_blocks_nothing(self):
        self.all_equal(self.run_ranks('rank_skips_a_branch')
                       + self.run_ranks('rank_skips_a_branch_of_views'))

    def test_a_data_loader_may_fork(self):
        self.all_equal(self.run_ranks('rank_loads_with_fork'))

    def test_a_data_loader_may_spawn(self):
        self.all_equal(self.run_ranks('rank_loads_with_spawn'))

    def test_a_forked_child_may_not_push_and_the_parent_trains_on(self):
        found = self.run_ranks('rank_forks')
        self.assertEqual([code for code, _ in found], [7, 7])
        self.all_equal([digest for _, digest in found])

    def test_a_lost_worker_is_named_by_backward_forward_and_check(self):
        (backward, forward, check), _ = self.run_ranks('rank_loses_the_other', start=lose_rank_1)
        self.assertEqual(backward[0], 'RuntimeError')
        self.assertEqual(forward, check)
        self.assertEqual(forward[0], 'PeerLost')
        for _, text in (backward, forward):
            self.assertIn('rank 1', text)
        self.assertIn(f'PeerLost: {forward[1]}', backward[1])

    def test_a_worker_that_does_not_push_is_named_at_the_deadline(self):
        text, _ = self.run_ranks('rank_times_out', start=release_rank_1)
        self.assertIn('rank 1', text)

    def test_models_that_differ_are_an_error_on_every_rank(self):
        """A rank that finds the difference leaves the job. On a busy host the other rank may then
        get the message that its peer has left, instead of the difference. So the case makes several
        attempts."""
        for attempt in range(ATTEMPTS):
            texts = self.run_ranks('rank_has_another_model', attempt=f'-{attempt}')
            if not any('has left' in text for text in texts):
                break
        for text in texts:
            for word in ('weight', '64', '80'):
                self.assertIn(word, text)

    def test_a_model_that_cannot_be_attached_is_refused_clearly(self):
        module, dtype, name = self.run_ranks('rank_is_refused', 1)[0]
        self.assertIn('attach() takes a DistributedDataParallel model, not a ', module)
        self.assertIn('float64', dtype)
        self.assertIn(', expected torch.float32 on cpu or cuda: call float()', dtype)
        self.assertIn('GRADPOOL_JOB', name)


class TorchTensors(unittest.TestCase):
    """Calls push_pull() with torch tensors, in one worker."""

    def push(self, values):
        import gradpool
        with gradpool.connect() as client, client.join('by-hand', 0, 1) as job:
            job.push_pull(job.declare('fc.weight', 6), values).wait()

    def refuses(self, values, *words):
        import gradpool
        with ranks.expects(self, gradpool.Mismatch, 'fc.weight', *words):
            self.push(values)

    def test_a_contiguous_tensor_of_any_shape_is_taken(self):
        import torch
        values = torch.arange(6.0).reshape(2, 3)
        self.push(values)
        self.assertEqual(values.flatten().tolist(), [0, 1, 2, 3, 4, 5])

    def test_a_tensor_of_another_dtype_is_refused(self):
        import torch
        self.refuses(torch.zeros(6, dtype=torch.float64), 'torch.float64', 'torch.float32')

    def test_a_tensor_with_strides_is_refused(self):
        import torch
        self.refuses(torch.zeros(2, 3).t(), 'contiguous()')

    def test_a_sparse_tensor_is_refused(self):
        import torch
        self.refuses(torch.zeros(6).to_sparse(), 'sparse', 'to_dense()')

    def test_a_tensor_on_another_device_is_refused(self):
        import torch
        self.refuses(torch.zeros(6, device='meta'), 'meta', 'cpu')

    def test_a_tensor_of_another_size_is_refused(self):
        import torch
        self.refuses(torch.zeros(7), '7 elements', 'expected 6')


def lose_rank_1(function, workers, **environment):
    """Starts the ranks. Rank 1 must end without a result."""
    processes = ranks.start_ranks(function, workers, **environment)
    found = ranks.finish_ranks(processes[:1])
    harness.finish(processes[1], ranks.RANK_TIMEOUT_S)
    return [*found, None]


def release_rank_1(function, workers, **environment):
    """Starts the ranks. Ends rank 1 when rank 0 has its results."""
    processes = ranks.start_ranks(function, workers, **environment)
    found = ranks.finish_ranks(processes[:1])
    return [*found, *ranks.finish_ranks(processes[1:])]


if __name__ == '__main__':
    ranks.main(globals(), forks=True)
