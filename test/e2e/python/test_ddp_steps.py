"""Compares steps of the service in gradpool.ddp with PyTorch's own optimizers. The optimizers run
in one process with the same gradients. Tests shared memory and tcp."""
import contextlib
import io
import os
import warnings

import ranks
import test_ddp
from test_ddp import attach, Rank, setUpModule, STEPS, tearDownModule, train_alone   # noqa

# Rates and momenta are powers of two, so their products are exact. One rounding in PyTorch then
# gives the same bits as two roundings in lanes.
EXACT = {
    'sgd': lambda torch, net: torch.optim.SGD(net.parameters(), 0.0625),
    'momentum': lambda torch, net: torch.optim.SGD(net.parameters(), 0.0625, momentum=0.5,
                                                   dampening=0.5),
    'nesterov': lambda torch, net: torch.optim.SGD(net.parameters(), 0.0625, momentum=0.5,
                                                   nesterov=True),
}
# These settings round differently. Each parameter must be within TOLERANCE of the value with
# PyTorch's own optimizer.
CLOSE = {
    'momentum of two groups': lambda torch, net: torch.optim.SGD(
        two_groups(net, lr=0.01), 0.05, momentum=0.9, dampening=0.1, weight_decay=0.01),
    'sgd and nesterov': lambda torch, net: torch.optim.SGD(
        two_groups(net, momentum=0.9, nesterov=True), 0.05),
    'adam': lambda torch, net: torch.optim.Adam(two_groups(net, betas=(0.8, 0.99)), 0.01,
                                                weight_decay=0.01),
    'adamw': lambda torch, net: torch.optim.AdamW(two_groups(net, weight_decay=0.0), 0.01),
}
TOLERANCE = {'rtol': 1e-5, 'atol': 1e-6}


def two_groups(net, **of_biases):
    named = list(net.named_parameters())
    return [{'params': [p for name, p in named if 'weight' in name]},
            {'params': [p for name, p in named if 'bias' in name], **of_biases}]


def halving(torch, optimizer):
    return torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)


def train_on_service(trainer, optimizer_of, is_late):
    """Trains ranks with different first parameters. `is_late`: the scheduler is made after
    attach()."""
    torch = trainer.torch
    trainer.optimizer = optimizer_of(torch, trainer.net)
    schedule = None if is_late else halving(torch, trainer.optimizer)
    if trainer.rank:
        for parameter in trainer.net.parameters():
            parameter.data.zero_()
    with attach(trainer, optimizer=trainer.optimizer):
        schedule = schedule or halving(torch, trainer.optimizer)
        for _ in range(STEPS):
            trainer.step(trainer.batch())
            schedule.step()
    assert not trainer.optimizer.state      # PyTorch's optimizer itself made no step


def rank_lets_the_service_step(rank, workers):
    """Trains with each rule. Returns {rule: [digest, whether it equals PyTorch's, whether it is
    near, largest distance]}."""
    import torch
    warnings.simplefilter('error')      # a scheduler warns about calls in the wrong order
    found = {}
    for name, optimizer_of in {**EXACT, **CLOSE}.items():
        trainer = Rank.beside(rank, workers) if found else Rank(rank, workers)
        train_on_service(trainer, optimizer_of, is_late=len(found) % 2)
        wanted = train_alone(workers, optimizer_of, halving)
        pairs = [(a.detach(), b.detach()) for a, b in
                 zip(trainer.net.parameters(), wanted.net.parameters())]
        found[name] = [trainer.digest(), trainer.digest() == wanted.digest(),
                       all(torch.allclose(a, b, **TOLERANCE) for a, b in pairs),
                       max((a - b).abs().max().item() for a, b in pairs)]
    return found


def rank_accumulates_and_restores(rank, workers):
    """Makes two backward passes in a step, uses a closure, and continues another model from a
    snapshot."""
    trainer, other = Rank(rank, workers), Rank.beside(rank, workers)
    path = os.environ['TEST_STORE'] + '.snapshot'

    def step(of, batches):
        def closure():
            of.optimizer.zero_grad()
            with of.model.no_sync():
                of.model(batches[0]).square().mean().backward()
            loss = of.model(batches[1]).square().mean()
            loss.backward()
            return loss
        return of.optimizer.step(closure).item()
    with attach(trainer, optimizer=trainer.optimizer) as attachment:
        step(trainer, [trainer.batch(), trainer.batch()])
        attachment.job.snapshot(path)
        batches = [trainer.batch(), trainer.batch()]
        loss, first = step(trainer, batches), trainer.digest()
        attachment.job.barrier()
    with attach(other, job='restored', optimizer=other.optimizer) as attachment:
        attachment.restore(path)
        assert step(other, batches) == loss
        return [first, other.digest()]


def rank_restores_two_models(rank, workers):
    """Restores two models with equal names in one job, like a GAN."""
    path = os.environ['TEST_STORE'] + '.both'

    def attach_two(job, is_first):
        two = [Rank(rank, workers) if is_first and not i else Rank.beside(rank, workers)
               for i in range(2)]
        return two, [attach(one, job=job, optimizer=one.optimizer) for one in two]
    first, attachments = attach_two('two', True)
    for i, one in enumerate(first):
        for _ in range(i + 1):
            one.step(one.batch())
    attachments[0].job.snapshot(path)
    others, restored = attach_two('two again', False)
    for attachment in restored:
        attachment.restore(path)
    found = [[one.digest() for one in of] for of in (first, others)]
    for attachment in attachments + restored:
        attachment.close()
    return found


def rank_misuses_steps(rank, workers):
    """Returns the errors of attach() for unsuitable optimizers. Also returns the errors of a step()
    and a backward() at the wrong time."""
    import gradpool
    trainer = Rank(rank, workers)
    optim, net = trainer.torch.optim, trainer.net
    some = list(net.parameters())[1:]
    attempts = [optim.Adam(net.parameters(), amsgrad=True),
                optim.SGD(net.parameters(), 0.1, maximize=True), optim.RMSprop(net.parameters()),
                optim.SGD(some, 0.1),
                optim.SGD([*net.parameters(), trainer.torch.zeros(3, requires_grad=True)], 0.1)]
    found = []
    for optimizer in attempts:
        try:
            attach(trainer, optimizer=optimizer)
        except gradpool.Mismatch as error:
            found.append(str(error))
    attach(trainer, optimizer=trainer.optimizer)

    def twice():
        for _ in range(2):
            trainer.model(trainer.batch()).sum().backward()
    for attempt in (trainer.optimizer.step, twice):
        try:
            attempt()
        except Exception as error:
            found.append(str(error))
    return found


def rank_attaches_again(rank, workers):
    """Attaches a model again. Returns [the warning of each attach(), digest after the steps of the
    first optimizer]."""
    import gradpool
    trainer = Rank(rank, workers)
    others = [trainer.torch.optim.SGD(trainer.net.parameters(), 0.5), trainer.optimizer, None]
    attachment, found = attach(trainer, optimizer=trainer.optimizer), []
    for number in range(STEPS):
        trainer.step(trainer.batch())
        for other in others if number == 0 else ():
            try:
                attach(trainer, optimizer=other)
            except gradpool.Mismatch as error:
                found.append(str(error))
    attachment.close()
    return [found, trainer.digest()]


def rank_steps_with_another(rank, workers):
    """Trains two models for one step each. The step of the first model is made by another optimizer
    than the attached one. Returns the messages of close()."""
    found = []
    for is_another in True, False:
        trainer = Rank.beside(rank, workers) if found else Rank(rank, workers)
        another = trainer.torch.optim.SGD(trainer.net.parameters(), 0.5)
        attachment, said = attach(trainer, optimizer=trainer.optimizer), io.StringIO()
        trainer.optimizer = another if is_another else trainer.optimizer
        trainer.step(trainer.batch())
        with contextlib.redirect_stderr(said):
            attachment.close()
        found.append(said.getvalue())
    return found


def rank_steps_alone(rank, workers):
    """Like rank_steps_with_another(), but without a second attach()."""
    trainer = Rank(rank, workers)
    with attach(trainer, optimizer=trainer.optimizer):
        for _ in range(STEPS):
            trainer.step(trainer.batch())
    return trainer.digest()


def rank_runs_hooks_of_steps(rank, workers):
    """Trains with hooks of steps. Returns [whether PyTorch has such hooks, the hooks that ran,
    digest]."""
    trainer, ran = Rank(rank, workers), []
    from torch.optim import optimizer as optimizers
    if not hasattr(optimizers, 'register_optimizer_step_post_hook'):
        return [False, ran, None]

    def hook(name):
        return lambda optimizer, arguments, options: ran.append(
            [name, optimizer is trainer.optimizer, len(arguments), len(options)])
    trainer.optimizer.register_step_pre_hook(hook('before'))
    with attach(trainer, optimizer=trainer.optimizer):
        trainer.optimizer.register_step_post_hook(hook('after'))
        with contextlib.ExitStack() as of_all:
            of_all.callback(optimizers.register_optimizer_step_post_hook(hook('of all')).remove)
            for _ in range(STEPS):
                trainer.step(trainer.batch())
    return [True, ran, trainer.digest()]


def rank_has_another_hook(rank, workers):
    import gradpool
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    trainer = Rank(rank, workers)
    trainer.model.register_comm_hook(None, default_hooks.allreduce_hook)
    try:
        attach(trainer)
    except gradpool.Mismatch as error:
        return str(error)


class Steps(test_ddp.Case):
    def check_steps(self, found):
        for name in EXACT:
            self.assertTrue(all(of_rank[name][1] for of_rank in found), name)
        for name in CLOSE:
            print(f'# {name}: {found[0][name][3]:.3g} from PyTorch')
            self.assertTrue(found[0][name][2], f'{name}: {found[0][name][3]}')
            self.all_equal([of_rank[name][0] for of_rank in found])

    def test_the_service_steps_as_the_optimizer_would_over_shared_memory(self):
        self.check_steps(self.run_ranks('rank_lets_the_service_step', GRADPOOL_TRANSPORT='shm'))

    def test_the_service_steps_as_the_optimizer_would_over_tcp(self):
        self.check_steps(self.run_ranks('rank_lets_the_service_step', GRADPOOL_TRANSPORT='tcp'))

    def test_steps_on_the_service_accumulate_and_go_on_from_a_snapshot(self):
        self.all_equal(sum(self.run_ranks('rank_accumulates_and_restores'), []))

    def test_two_models_of_a_job_go_on_from_its_snapshot_each_with_its_own(self):
        for (one, other), restored in self.run_ranks('rank_restores_two_models'):
            self.assertNotEqual(one, other)
            self.assertEqual(restored, [one, other])

    def test_a_second_attach_is_refused_and_the_first_optimizer_goes_on(self):
        found = self.run_ranks('rank_attaches_again')
        for texts, _ in found:
            self.assertEqual(len(texts), 3)
            for text in texts:
                self.assertIn('attach() a second time to one DistributedDataParallel', text)
                self.assertIn('make another DistributedDataParallel of the module', text)
        digest = self.all_equal([digest for _, digest in found])
        self.assertEqual(digest, self.all_equal(
            self.run_ranks('rank_steps_alone')))

    def test_a_last_step_of_another_optimizer_is_reported(self):
        for another, attached in self.run_ranks('rank_steps_with_another'):
            self.assertRegex(another, "gradpool: job '.*', rank [01]: step\\(\\) of the attached "
                             'optimizer was not called after the last backward')
            self.assertIn('attach() the optimizer whose step() the script calls', another)
            self.assertEqual(attached, '')

    def test_hooks_of_a_step_run_as_without_the_service(self):
        found = self.run_ranks('rank_runs_hooks_of_steps')
        if not found[0][0]:
            self.skipTest('PyTorch 1 has no hooks of a step')
        for _, ran, _ in found:
            self.assertEqual(ran, STEPS * [[name, True, 1, 0]
                                           for name in ('before', 'after', 'of all')])
        self.assertEqual(self.all_equal([digest for _, _, digest in found]),
                         self.all_equal(self.run_ranks('rank_steps_alone')))

    def test_a_model_with_another_hook_is_refused_in_words(self):
        self.assertIn('a communication hook', self.run_ranks('rank_has_another_hook', 1)[0])

    def test_an_optimizer_that_the_service_cannot_be_is_refused(self):
        amsgrad, maximize, kind, lacks, foreign, early, twice = \
            self.run_ranks('rank_misuses_steps', 1)[0]
        for text, *words in (
                (amsgrad, 'amsgrad=True', ': the service has no such rule; leave the option out'),
                (maximize, 'maximize=True'),
                (kind, 'RMSprop', ', expected torch.optim.SGD, Adam or AdamW'),
                (lacks, '0.weight'),
                (foreign, 'the optimizer has 1 parameters without gradients of this model'),
                (early, 'but no backward() has sent gradients'), (twice, 'no_sync()')):
            for word in words:
                self.assertIn(word, text)


if __name__ == '__main__':
    ranks.main(globals(), forks=True)
