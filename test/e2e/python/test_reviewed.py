"""Compares typical scripts with attach(optimizer=) or gradpool.torch with the same script over
gloo. Cases: frozen parameters, parameters that no rank uses, skipped steps, unsupported calls."""
import copy
import os
import subprocess
import tempfile
import unittest

import harness
import ranks
from test_ddp import setUpModule, tearDownModule     # noqa: found by name
from test_scripts import begin, refusal

STEPS = 4


class Script:
    """A model of three layers, and the same model trained over gloo for comparison. Each
    forward() uses the given layers."""

    def __init__(self, torch, optimizer_of, prefix, frozen=()):
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(3))

            def forward(self, values, used):
                return sum(self.layers[i](values) for i in used)
        torch.manual_seed(3)
        self.torch, self.prefix, self.seen = torch, prefix, 0
        self.net = Net()
        for i in frozen:
            self.net.layers[i].requires_grad_(False)
        self.alone = copy.deepcopy(self.net)
        self.optimizers = [optimizer_of(net.parameters()) for net in (self.net, self.alone)]
        self.models = [torch.nn.parallel.DistributedDataParallel(net, find_unused_parameters=True)
                       for net in (self.net, self.alone)]

    def attach(self):
        import gradpool.ddp
        gradpool.ddp.attach(self.models[0], optimizer=self.optimizers[0], prefix=self.prefix)
        return self

    def step(self, rank, used):
        self.seen += 1
        generator = self.torch.Generator().manual_seed(self.seen * 10 + rank)
        values = self.torch.randn(5, 3, generator=generator)
        for model, optimizer in zip(self.models, self.optimizers):
            optimizer.zero_grad(set_to_none=True)
            model(values, used).square().mean().backward()
            optimizer.step()

    def is_right(self):
        return all(self.torch.allclose(one, other, atol=1e-6) for one, other in zip(
            self.net.parameters(), self.alone.parameters()))


def steps_of(rank, script, every):
    """Makes these steps. Returns the text of the error, or whether the parameters equal gloo's at
    the end."""
    for used in every:
        text = refusal(script.step, rank, used)
        if text != 'nothing was raised':
            return text
    return script.is_right()


def rank_freezes(rank, workers):
    torch, _ = begin(rank, workers)
    kinds = (lambda given: torch.optim.AdamW(given, 0.1), lambda given: torch.optim.SGD(given, 0.1))
    found = []
    for i, kind in enumerate(kinds):
        script = Script(torch, kind, f'{i}/', frozen=[1]).attach()
        found.append(steps_of(rank, script, [(0, 1, 2)] * STEPS))
        states = [one.state_dict() for one in script.optimizers]
        found.append([len(one['param_groups'][0]['params']) for one in states])
        found.append(states[0]['state'].keys() == states[1]['state'].keys())
        for one in script.optimizers:
            one.load_state_dict(copy.deepcopy(one.state_dict()))
        found.append(steps_of(rank, script, [(0, 1, 2)] * STEPS))
    # Trains with a group of frozen parameters only.
    script = Script(torch, lambda given: torch.optim.SGD(
        [{'params': part} for part in zip(*[iter(given)] * 2)], 0.1, momentum=0.9), 'g/', [0, 2])
    found.append(steps_of(rank, script.attach(), [(0, 1, 2)] * STEPS))
    script.net.layers[0].requires_grad_(True)
    found.append(refusal(script.step, rank, (0, 1, 2)))
    return found


# key: name; values: the optimizer, layers used in each step, words of the error or None
UNUSED = {
    'plain': (lambda of, given: of.SGD(given, 0.1), [(0, 1), (0,), (0, 2), (1,)], None),
    'decays': (lambda of, given: of.SGD(given, 0.1, weight_decay=0.1), [(0, 1)],
               "'layers.2.weight' has no gradient on any rank"),
    'never': (lambda of, given: of.Adam(given, 0.1), [(0, 1)] * STEPS, None),
    'never with decay': (lambda of, given: of.AdamW(given, 0.1), [(0, 1)] * STEPS,
                         "'layers.2.weight' has no gradient on any rank"),
    'later': (lambda of, given: of.Adam(given, 0.1), [(0, 1), (0, 1), (0, 1, 2)],
              "'layers.2.weight' has its first gradient after steps without one"),
    'later with momentum': (lambda of, given: of.SGD(given, 0.1, momentum=0.9),
                            [(0, 1), (0, 1), (0, 1, 2), (0, 1, 2)], None),
    'not any more': (lambda of, given: of.SGD(given, 0.1, momentum=0.9), [(0, 1, 2), (0, 1)],
                     "'layers.2.weight' has no gradient on any rank"),
}


def rank_leaves_out(rank, workers):
    torch, _ = begin(rank, workers)
    return {name: steps_of(rank, Script(
        torch, lambda given, kind=kind: kind(torch.optim, given), f'{name}/').attach(), every)
        for name, (kind, every, _) in UNUSED.items()}


def rank_leaves_out_after_a_load(rank, workers):
    """Loads moments before the first step. A parameter without a gradient must not change; a step
    with a gradient of zero would change it."""
    torch, _ = begin(rank, workers)
    script = Script(torch, lambda given: torch.optim.Adam(given, 0.1), 'loaded/')
    for net, optimizer in zip((script.net, script.alone), script.optimizers):
        for one in net.parameters():
            one.grad = torch.ones_like(one)
        optimizer.step()
    return steps_of(rank, script.attach(), [(0, 1)])


def rank_freezes_after_a_start(rank, workers):
    """Freezes a parameter later. Its moments stay in the optimizer's state."""
    torch, _ = begin(rank, workers)
    script = Script(torch, lambda given: torch.optim.Adam(given, 0.1), 'since/')
    for net, optimizer in zip((script.net, script.alone), script.optimizers):
        for one in net.parameters():
            one.grad = torch.ones_like(one)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        net.layers[1].requires_grad_(False)
    script.models = [torch.nn.parallel.DistributedDataParallel(net)
                     for net in (script.net, script.alone)]
    is_right = steps_of(rank, script.attach(), [(0, 1, 2)] * STEPS)
    states = [one.state_dict()['state'] for one in script.optimizers]
    return is_right, states[0].keys() == states[1].keys() and all(
        torch.allclose(states[0][i][key], states[1][i][key], atol=1e-6)
        for i in states[1] for key in states[1][i])


def rank_skips_a_step(rank, workers):
    torch, _ = begin(rank, workers)
    script = Script(torch, lambda given: torch.optim.SGD(given, 0.1), 'skips/').attach()
    script.step(rank, (0, 1, 2))
    try:
        for _ in range(2):
            script.models[0](torch.ones(1, 3), (0, 1, 2)).sum().backward()
    except RuntimeError as error:
        return str(error)
    return 'nothing was raised'


def rank_has_doubles(rank, workers):
    torch, _ = begin(rank, workers)
    script = Script(torch, lambda given: torch.optim.SGD(given, 0.1), 'doubles/')
    script.models[0].double()
    return refusal(script.attach)


def rank_scripts_horovod(rank, workers):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(workers))
    import torch
    import gradpool.torch as hvd
    hvd.init()
    net = torch.nn.Linear(2, 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), 0.1))
    net(torch.ones(1, 2)).sum().backward()
    texts = [refusal(optimizer.zero_grad)]
    optimizer.step()
    texts += [callable(hvd.elastic.run), refusal(hvd.broadcast_parameters, net, 0)]
    hvd.shutdown()
    return texts


class Reviewed(unittest.TestCase):
    def run_ranks(self, function):
        with tempfile.TemporaryDirectory(prefix='gradpool-reviewed-') as folder:
            return ranks.run_ranks(function, 2, TEST_STORE=folder,
                                   GRADPOOL_JOB=self.id().rsplit('.', 1)[-1])

    def has_words(self, function, *words):
        for text in self.run_ranks(function):
            for one in words:
                self.assertIn(one, text)

    def test_an_optimizer_may_have_frozen_parameters_of_the_model(self):
        for found in self.run_ranks('rank_freezes'):
            self.assertEqual(found[:-1], 2 * [True, [6, 6], True, True] + [True])
            self.assertIn('was thawed after', found[-1])

    def test_a_parameter_without_use_on_all_ranks_is_left_unchanged_or_refused(self):
        for found in self.run_ranks('rank_leaves_out'):
            for name, (_, _, words) in UNUSED.items():
                if words is None:
                    self.assertIs(found[name], True, name)
                else:
                    self.assertIn(words, str(found[name]), name)

    def test_moments_that_were_loaded_count_for_a_parameter_that_no_rank_uses(self):
        self.has_words('rank_leaves_out_after_a_load', 'has no gradient on any rank',
                       ': lanes would update the parameter with zeros, but PyTorch leaves it '
                       'unchanged. Set requires_grad to False')

    def test_moments_of_a_parameter_that_was_frozen_later_are_saved_again(self):
        self.assertEqual(self.run_ranks('rank_freezes_after_a_start'), 2 * [[True, True]])

    def test_the_backward_after_a_skipped_step_is_refused(self):
        self.has_words('rank_skips_a_step', 'before step() of the attached optimizer',
                       'attach without the optimizer')

    def test_parameters_of_another_dtype_are_refused_with_a_door_that_takes_them(self):
        self.has_words('rank_has_doubles', 'torch.float64', "init_process_group('gradpool')")

    def test_unsupported_calls_of_horovod_name_an_alternative(self):
        for zeroed, is_there, whole in self.run_ranks('rank_scripts_horovod'):
            self.assertIn('optimizer.synchronize()', zeroed)
            self.assertTrue(is_there)
            self.assertIn('model.state_dict()', whole)


class Words(unittest.TestCase):
    def run_gradpool(self, *words, **environment):
        return subprocess.run([harness.GRADPOOL, *words], capture_output=True, text=True,
                              env={**os.environ, **environment})

    def test_an_unknown_policy_is_refused_with_the_list_of_known_ones(self):
        answer = self.run_gradpool('serve', '--policy', 'fastest')
        self.assertEqual(answer.returncode, 2)
        self.assertIn('--policy fastest: expected one of shared, least-loaded, dedicated',
                      answer.stderr)

    def test_an_unknown_log_level_is_named(self):
        answer = self.run_gradpool('serve', '--policy', 'fastest', GRADPOOL_LOG_LEVEL='loud')
        self.assertIn('GRADPOOL_LOG_LEVEL=loud: expected error', answer.stderr)


if __name__ == '__main__':
    ranks.main(globals(), forks=True)
