"""Tests parameters and moments on lanes (attach() with an optimizer). Scripts change, load and save
parameters and moments as with PyTorch's own optimizers, and continue to train."""
import collections
import copy
import gc
import io
import os
import tempfile

import ranks
import test_ddp
from test_ddp import attach, Rank, setUpModule, STEPS, tearDownModule   # noqa: found by name

SAVED_AT = 3
OPTIMIZERS = {
    'sgd': lambda torch, net: torch.optim.SGD(net.parameters(), 0.05),
    'momentum': lambda torch, net: torch.optim.SGD(net.parameters(), 0.05, momentum=0.9),
    'nesterov': lambda torch, net: torch.optim.SGD(net.parameters(), 0.05, momentum=0.9,
                                                   nesterov=True),
    'adam': lambda torch, net: torch.optim.Adam(net.parameters(), 0.01, weight_decay=0.01),
    'adamw': lambda torch, net: torch.optim.AdamW(net.parameters(), 0.01),
}
TOLERANCE = {'rtol': 1e-5, 'atol': 1e-6}


class Ones(Rank):
    """All gradients are 1. With rate 0.5 and momentum 0.5, the steps are -0.5, -0.75, -0.875.
    The model has two buckets."""

    def make_net(self):
        nn = self.torch.nn
        return nn.Sequential(nn.Linear(1, 400, bias=False), nn.Linear(400, 1, bias=False)).to(
            self.device)

    def ones(self):
        return self.torch.ones(1, 1, device=self.device)

    def train(self, steps=1):
        for _ in range(steps):
            self.optimizer.zero_grad()
            # DDP needs this pass; the sum below sets all gradients to 1
            self.model(self.ones())
            sum(one.sum() for one in self.net.parameters()).backward()
            self.optimizer.step()


def ones_of(rank, workers, is_first, prefix):
    made = (Ones if is_first else Ones.beside)(rank, workers)
    made.optimizer = made.torch.optim.SGD(made.net.parameters(), 0.5, momentum=0.5)
    made.attachment = attach(made, optimizer=made.optimizer, prefix=prefix)
    return made


def loads(of):
    of.net.load_state_dict({name: value.new_full(value.shape, 7)
                            for name, value in of.net.state_dict().items()})


def fills(of):
    with of.torch.no_grad():
        for one in of.net.parameters():
            one.fill_(7)


def clamps_data(of):
    for one in of.net.parameters():
        one.data.clamp_(7, 7)


def writes_one_element_by_numpy(of):
    of.net[0].weight.detach().numpy()[399] = 7


def copies_a_vector(of):
    utils = of.torch.nn.utils
    vector = utils.parameters_to_vector(of.net.parameters())
    utils.vector_to_parameters(of.torch.full_like(vector, 7), of.net.parameters())


def swaps_memory(of):
    for one in of.net.parameters():
        one.data = of.torch.full_like(one.data, 7)


def initialises_by_rank(of):
    for one in of.net.parameters():
        of.torch.nn.init.constant_(one, 7 + of.rank)


def swaps_two_elements(of):
    """Exchanges two values, so the sum stays the same."""
    data = of.net[1].weight.data
    data[0, 0], data[0, 1] = data[0, 0] + 1, data[0, 1] - 1
    data[0, :2] = data[0, :2].flip(0)


WRITERS = (loads, fills, clamps_data, copies_a_vector, swaps_memory, initialises_by_rank)


def rank_writes(rank, workers):
    """Changes parameters in several ways. Returns {way: [whether all values are as expected,
    whether moments continue]}. After one step the momentum is 1, so the next steps are 0.75 and
    0.875."""
    found = {}
    for write in WRITERS:
        of = ones_of(rank, workers, not found, f'{write.__name__}/')
        of.train()
        write(of)
        of.train()
        once = [(one == 7 - 0.75).all().item() for one in of.net.parameters()]
        of.train()
        found[write.__name__] = once + [(one == 7 - 0.75 - 0.875).all().item()
                                        for one in of.net.parameters()]
    for write in writes_one_element_by_numpy, swaps_two_elements:
        of = ones_of(rank, workers, False, f'{write.__name__}/')
        of.train()
        write(of)
        expected = [one.detach() - 0.75 for one in of.net.parameters()]
        of.train()
        found[write.__name__] = [one.equal(value)
                                 for one, value in zip(of.net.parameters(), expected)]
    return found


def rank_clips_in_each_step(rank, workers):
    """Trains like a Wasserstein GAN. Rank 0 alone evaluates between the steps."""
    of = ones_of(rank, workers, True, None)
    for _ in range(5):
        of.train()
        with of.torch.no_grad():
            for one in of.net.parameters():
                one.clamp_(-0.01, 0.01)
        if rank == 0:
            of.model.module(of.ones())
    of.train()
    return [(one + 0.01).tolist() for one in of.net.parameters()]


def rank_writes_alone(rank, workers):
    """Changes or loads values in one rank only. Returns the error of each rank."""
    found = []
    for number in range(2):
        of = ones_of(rank, workers, not found, f'{number}/')
        of.train()
        if number == rank:
            if number == 0:
                fills(of)
            else:
                of.optimizer.load_state_dict(of.optimizer.state_dict())
        try:
            of.train()
        except RuntimeError as error:
            found.append(str(error))
    return found


# ---- the same optimizer with another model ----

def moved(of):
    """Makes a step. Returns the change of all parameters."""
    before = [one.detach().clone() for one in of.net.parameters()]
    of.train()
    return sorted({round(value, 3) for one, other in zip(of.net.parameters(), before)
                   for value in (one - other).flatten().tolist()})


def wrap_again(of):
    """Attaches another model with the same parameters. Only rank 0 frees the former model first, so
    the ranks detect the end of this model at different times."""
    of.model = of.attachment = None
    if of.rank == 0:
        gc.collect()
    of.model = of.torch.nn.parallel.DistributedDataParallel(
        of.net, broadcast_buffers=False, bucket_cap_mb=0.02)
    of.attachment = attach(of, optimizer=of.optimizer)


def attach_again(of):
    """Attaches again and returns the error. After load_state_dict() the next steps work."""
    saved, text = of.optimizer.state_dict(), 'no error'
    of.attachment.close()
    try:
        wrap_again(of)
    except RuntimeError as error:
        text = str(error)
    of.optimizer.load_state_dict(saved)
    wrap_again(of)
    return text


def state_of_one(of):
    of.optimizer.state[of.net[0].weight] = {'momentum_buffer': of.torch.zeros(400, 1)}
    try:
        of.train()
    except RuntimeError as error:
        return str(error)
    return 'no error'


def rank_goes_on_with_the_optimizer(rank, workers):
    """Makes steps with a momentum of 0.5. Also returns texts of errors."""
    of = ones_of(rank, workers, True, None)
    steps = [moved(of)]
    for _ in range(2):
        wrap_again(of)
        steps.append(moved(of))
    of.model = None
    gc.collect()
    buffers = [one['momentum_buffer'].unique().tolist()
               for one in of.optimizer.state_dict()['state'].values()]
    wrap_again(of)
    of.optimizer.state = collections.defaultdict(dict)
    steps += [moved(of), moved(of)]
    of.optimizer.state.clear()
    steps += [moved(of), moved(of)]
    stays = ones_of(rank, workers, False, 'stays/')     # rank 0 also stays in the former job
    texts = [attach_again(of)]
    steps.append(moved(of))
    del stays
    return steps, buffers, [*texts, state_of_one(of)]


# ---- checkpoints ----

def trainer_of(rank, workers, number):
    """Returns a Rank. Attached models of a process have different names in the job."""
    return (Rank.beside if number else Rank)(rank, workers)


def train(of, steps):
    for _ in range(steps):
        of.step(of.batch())


def path_of(name):
    return os.path.join(os.environ['TEST_FOLDER'], name)


def save(of, name):
    """Saves in rank 0 while the other ranks continue, like a typical script."""
    if of.rank == 0:
        of.torch.save({'model': of.net.state_dict(), 'optimizer': of.optimizer.state_dict()},
                      path_of(name))


def rank_trains_and_saves(rank, workers):
    """Saves after SAVED_AT steps. Returns {optimizer: digest after STEPS}."""
    found = {}
    for name, optimizer_of in OPTIMIZERS.items():
        of = trainer_of(rank, workers, len(found))
        of.optimizer = optimizer_of(of.torch, of.net)
        attach(of, optimizer=of.optimizer)
        train(of, SAVED_AT)
        save(of, name)
        train(of, STEPS - SAVED_AT)
        found[name] = of.digest()
    return found


def load(of, name, is_rank_0_alone=False):
    if of.rank == 0 or not is_rank_0_alone:
        saved = of.torch.load(path_of(name))
        of.net.load_state_dict(saved['model'])
        of.optimizer.load_state_dict(saved['optimizer'])


def fresh(rank, workers, number, optimizer_of):
    """Returns a new Rank with other parameters, to load the checkpoint."""
    of = trainer_of(rank, workers, number)
    of.optimizer = optimizer_of(of.torch, of.net)
    for one in of.net.parameters():
        one.data.zero_()
    for _ in range(SAVED_AT):
        of.batch()
    return of


def rank_loads_and_trains(rank, workers):
    """Loads the checkpoint and trains. Returns {optimizer: [digest if loaded after attach(), digest
    if rank 0 loaded before attach(), distance to a DDP with PyTorch's own optimizer]}."""
    found, number = {}, 0
    for name, optimizer_of in OPTIMIZERS.items():
        after, before, plain = [fresh(rank, workers, number + i, optimizer_of) for i in range(3)]
        number += 3
        attach(after, optimizer=after.optimizer)
        load(after, name)
        load(before, name, is_rank_0_alone=True)
        attach(before, optimizer=before.optimizer)
        load(plain, name)
        for of in after, before, plain:
            train(of, STEPS - SAVED_AT)
        pairs = list(zip(plain.net.parameters(), after.net.parameters()))
        found[name] = [after.digest(), before.digest(),
                       all(a.allclose(b, **TOLERANCE) for a, b in pairs)]
    return found


def rank_goes_on_from_pytorch(rank, workers):
    """Attaches with moments of PyTorch's own optimizer. Also returns the contents of state_dict()
    before and after steps, and of copies and pickles of the optimizer."""
    of = Rank(rank, workers)
    torch = of.torch
    of.optimizer = torch.optim.Adam(of.net.parameters(), 0.01)
    train(of, 2)
    ours = copy.deepcopy(of.optimizer.state_dict())
    attachment = attach(of, optimizer=of.optimizer)
    assert same(torch, of.optimizer.state_dict(), ours)
    plain = Rank.beside(rank, workers)
    plain.net.load_state_dict(of.net.state_dict())
    plain.optimizer = torch.optim.Adam(plain.net.parameters(), 0.01)
    plain.optimizer.load_state_dict(ours)
    plain.generator.set_state(of.generator.get_state())
    for one in of, plain:
        train(one, 2)
    kept, theirs = of.optimizer.state_dict(), plain.optimizer.state_dict()
    copied, memory = copy.deepcopy(of.optimizer), io.BytesIO()
    torch.save(of.optimizer, memory)
    memory.seek(0)
    found = [same(torch, kept, theirs), same(torch, copied.state_dict(), kept),
             same(torch, torch.load(memory, weights_only=False).state_dict(), kept),
             len(of.optimizer.state)]
    of.optimizer.load_state_dict(ours)
    found.append(same(torch, of.optimizer.state_dict(), ours))
    train(of, 1)
    attachment.close()
    try:
        of.optimizer.state_dict()
    except RuntimeError as error:
        found.append('call state_dict() before' in str(error))
    return found


def same(torch, one, other):
    """Compares states of two optimizers: the same keys in the same order, and near values."""
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(torch, one[key], other[key]) for key in one)
    if isinstance(one, torch.Tensor):
        return one.shape == other.shape and one.dtype == other.dtype and \
            one.allclose(other, **TOLERANCE)
    return one == other


GONE_ON = [True, True, True, 0, True, True]       # expected result of rank_goes_on_from_pytorch()


def check_clipped(case, values):
    """Checks values returned by rank_clips_in_each_step()."""
    for of_one in values:
        case.assertLess(max(abs(value + 1) for row in of_one for value in row), 0.05)


class Writes(test_ddp.Case):
    def test_a_write_to_parameters_is_used_and_moments_stay(self):
        for of_rank in self.run_ranks('rank_writes'):
            for how, is_right in of_rank.items():
                self.assertTrue(all(is_right), f'{how}: {is_right}')

    def test_clipping_of_parameters_in_each_step_holds(self):
        one, other = self.run_ranks('rank_clips_in_each_step')
        self.assertEqual(one, other)
        check_clipped(self, one)

    def test_a_write_or_load_on_only_one_rank_is_refused_on_all(self):
        for of_rank in self.run_ranks('rank_writes_alone'):
            self.assertEqual(len(of_rank), 2)
            for text in of_rank:
                self.assertIn(': on some ranks the script has written into parameters', text)
                self.assertIn('on every rank', text)


class SameOptimizer(test_ddp.Case):
    def test_moments_outlive_the_model_and_a_state_that_is_emptied_counts(self):
        for steps, buffers, texts in self.run_ranks('rank_goes_on_with_the_optimizer'):
            self.assertEqual(steps, [[-0.5], [-0.75], [-0.875], [-0.5], [-0.75], [-0.5], [-0.75],
                                     [-0.875]])
            self.assertEqual(buffers, 2 * [[1.75]])
            for text in texts:
                self.assertIn('load_state_dict()', text)
            self.assertIn('the script has written to optimizer.state, but lanes store the moments',
                          texts[1])


class Checkpoints(test_ddp.Case):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix='gradpool-kept-')
        self.addCleanup(folder.cleanup)
        self.environment = {'TEST_FOLDER': folder.name}

    def test_a_resumed_training_ends_with_the_bits_of_an_uninterrupted_one(self):
        whole = self.run_ranks('rank_trains_and_saves', **self.environment)
        self.assertEqual(*whole)
        for of_rank in self.run_ranks('rank_loads_and_trains', **self.environment):
            for name, (after, before, is_near) in of_rank.items():
                self.assertEqual([after, before], 2 * [whole[0][name]], name)
                self.assertTrue(is_near, name)

    def test_moments_travel_from_pytorch_to_the_service_and_back(self):
        for found in self.run_ranks('rank_goes_on_from_pytorch'):
            self.assertEqual(found, GONE_ON)


if __name__ == '__main__':
    ranks.main(globals(), forks=True)
