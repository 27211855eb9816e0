"""Compares each codec of gradpool.codecs with a plain computation. Trains models with each codec
through each door, on a real service."""
import hashlib
import os
import warnings

import numpy

import ranks
import test_ddp
from test_ddp import attach, Rank, setUpModule, tearDownModule, train_alone     # noqa

# most weights of the small models are larger than this, and all of their biases are smaller
MIN_BYTES = 1024
LEARNING_STEPS = 300
# Allowed difference between the loss with a codec and without one.
LOSS_ABOVE = 0.02


def codecs_of():
    from gradpool.codecs import Dithering, OneBit, RandomK, TopK
    return {'onebit': OneBit(MIN_BYTES), 'topk': TopK(0.05, MIN_BYTES),
            'randomk': RandomK(0.1, MIN_BYTES), 'dithering': Dithering(4, MIN_BYTES),
            'coarse': Dithering(2, MIN_BYTES), 'fine': Dithering(8, MIN_BYTES, False)}


def digest_of(torch_tensors):
    return hashlib.sha256(b''.join(one.detach().numpy().tobytes()
                                   for one in torch_tensors)).hexdigest()


def coded_mean(codec, workers):
    """Returns the function `mean_of` that train_alone() needs. It computes the expected mean of all
    ranks."""
    import torch
    from gradpool.codecs import Feedback
    each = [Feedback(codec) for _ in range(workers)]

    def mean_of(name, gradients):
        if not codec.takes(gradients[0].numel()):
            return test_ddp.mean_in_rank_order(name, gradients)
        codes = [one.encode(name, gradient.cpu()) for one, gradient in zip(each, gradients)]
        together = sum(codes[1:], codes[0]) / numpy.float32(workers) \
            if codec.operation == 'mean' else numpy.concatenate(codes)
        mean = torch.empty(gradients[0].shape)
        each[-1].decode(name, together, mean, workers)
        return mean.to(gradients[0])
    return mean_of


def rank_trains_coded(rank, workers):
    """Trains with each codec. Returns {codec: [digest, expected digest, whether it has a
    residual]}."""
    found = {}
    for name, codec in codecs_of().items():
        trainer = Rank.beside(rank, workers) if found else Rank(rank, workers)
        with attach(trainer, compression=codec) as attachment:
            digest = test_ddp.train(trainer)
            carried = attachment._way.feedback.residual('2.weight') is not None
        wanted = train_alone(workers, mean_of=coded_mean(codec, workers)).digest()
        found[name] = [digest, wanted, carried]
    return found


def rank_wraps_the_hook(rank, workers):
    """Uses compression as a hook of torch, alone and inside torch's own wrapper."""
    import gradpool.distributed     # noqa
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_wrapper
    from gradpool.compression_hook import compression_hook, CompressionState
    found = {}
    for name, codec in codecs_of().items():
        for hook in compression_hook, fp16_compress_wrapper(compression_hook):
            trainer = Rank.beside(rank, workers) if found else Rank(rank, workers)
            trainer.model.register_comm_hook(CompressionState(trainer.model, codec), hook)
            found[f'{name} {hook.__name__}'] = test_ddp.train(trainer)
    alone = {name: train_alone(workers, mean_of=coded_mean(codec, workers)).digest()
             for name, codec in codecs_of().items() if codec.operation == 'gather'}
    return found, alone


def begin_by(door, trainer, codec):
    """Starts training through the door. Returns the objects with residuals."""
    from gradpool.compression_hook import compression_hook, CompressionState
    import gradpool.torch as hvd
    if door == 'attach':
        return attach(trainer, compression=codec)
    if door == 'hook':
        state = CompressionState(trainer.model, codec)
        trainer.model.register_comm_hook(state, compression_hook)
        return state
    trainer.model = trainer.net
    trainer.optimizer = hvd.DistributedOptimizer(trainer.optimizer, trainer.net.named_parameters(),
                                                 codec)
    return trainer.optimizer


def train_with_a_break(rank, workers, door, codec):
    """Returns three digests: of an uninterrupted training, of a training continued from its
    checkpoint, and of a training continued without residuals."""
    import torch
    path = f"{os.environ['TEST_STORE']}.step-3.{rank}"
    first = Rank.beside(rank, workers)
    keeper = begin_by(door, first, codec)
    for _ in range(3):
        first.step(first.batch())
    torch.save([first.net.state_dict(), first.optimizer.state_dict(), first.generator.get_state(),
                keeper.residuals.state_dict()], path)
    found = [test_ddp.train(first)]
    for is_whole in True, False:
        again = Rank.beside(rank, workers)
        keeper = begin_by(door, again, codec)
        net, optimizer, generator, residuals = torch.load(path)
        again.net.load_state_dict(net)
        again.optimizer.load_state_dict(optimizer)
        again.generator.set_state(generator)
        if is_whole:
            keeper.residuals.load_state_dict(residuals)
        found.append(test_ddp.train(again))
    return found


def rank_goes_on(rank, workers):
    """Trains with a break through each door. Returns {door and codec: digests}."""
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(workers))
    import gradpool.torch as hvd
    Rank(rank, workers)
    hvd.init()
    return {f'{door} {name}': train_with_a_break(rank, workers, door, codecs_of()[name])
            for door in ('attach', 'hook', 'optimizer')
            for name in ('topk', 'randomk', 'dithering', 'fine')}


def rank_loads_what_does_not_fit(rank, workers):
    """Loads a state that does not fit through each door. Returns the error of each door."""
    import gradpool
    import gradpool.torch as hvd
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(workers))
    found, codec = [], codecs_of()['topk']
    trainer, plain = Rank(rank, workers), Rank.beside(rank, workers)
    hvd.init()
    net = trainer.torch.nn.Linear(64, 64)
    optimizer = hvd.DistributedOptimizer(trainer.torch.optim.SGD(net.parameters(), 0.1),
                                         net.named_parameters(), codec)
    whole = attach(plain).residuals
    kept = begin_by('attach', trainer, codec).residuals
    # this state has no residuals: the codec was not used yet
    kept.load_state_dict(whole.state_dict())
    trainer.step(trainer.batch())
    state, named = kept.state_dict(), kept.state_dict()['residuals']
    other, short = {'x': named['2.weight']}, {'2.weight': named['2.weight'][1:]}
    net(trainer.torch.ones(1, 64)).sum().backward()
    for attempt in (
            lambda: optimizer.residuals.state_dict(),
            lambda: kept.load_state_dict({**state, 'codec': repr(codecs_of()['onebit'])}),
            lambda: kept.load_state_dict({**state, 'residuals': other}),
            lambda: kept.load_state_dict({**state, 'residuals': short}),
            lambda: kept.load_state_dict({**state, 'rank': 7}),
            lambda: kept.load_state_dict(trainer.net.state_dict()),
            lambda: kept.load_state_dict([state]), lambda: whole.load_state_dict(state)):
        try:
            attempt()
        except gradpool.Mismatch as error:
            found.append(str(error))
    optimizer.step()
    is_same = all(one.equal(named[name]) for name, one in kept.state_dict()['residuals'].items())
    return found, is_same


def digits():
    import sklearn.datasets
    import torch
    given = sklearn.datasets.load_digits()
    return torch.tensor(given.data / 16, dtype=torch.float32), torch.tensor(given.target)


def learn_digits(rank, workers, compression, prefix):
    """Trains an MLP with gradpool.torch. Returns [loss of all digits, digest]."""
    import torch
    import gradpool.torch as hvd
    images, labels = digits()
    torch.manual_seed(7)
    net = torch.nn.Sequential(torch.nn.Linear(64, 48), torch.nn.ReLU(), torch.nn.Linear(48, 10))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), 0.1),
        [(prefix + name, one) for name, one in net.named_parameters()], compression)
    chosen = torch.Generator().manual_seed(rank)
    loss_of = torch.nn.functional.cross_entropy
    for _ in range(LEARNING_STEPS):
        shard = torch.randint(len(images), (32,), generator=chosen)
        optimizer.zero_grad()
        loss_of(net(images[shard]), labels[shard]).backward()
        optimizer.step()
    with torch.no_grad():
        return [loss_of(net(images), labels).item(), digest_of(net.parameters())]


def rank_learns(rank, workers):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(workers))
    import torch
    import gradpool
    import gradpool.torch as hvd
    torch.set_num_threads(1)
    hvd.init()
    found = {'none': learn_digits(rank, workers, hvd.Compression.none, 'none/')}
    for name, codec in codecs_of().items():
        found[name] = learn_digits(rank, workers, codec, name + '/')
    try:
        hvd.allreduce(torch.zeros(3), compression=hvd.Compression.onebit())
    except gradpool.Mismatch as error:
        found['refused'] = str(error)
    net = torch.nn.Linear(3, 3).double()
    with warnings.catch_warnings(record=True) as told:
        hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), 0.1), net.named_parameters(),
                                 compression=hvd.Compression.onebit())
    found['told'] = str(told[0].message)
    hvd.shutdown()
    return found


def rank_joins(rank, workers):
    """Trains 3 + 2 r batches on rank r. Returns [change of the last rank's weights, expected
    change]."""
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(workers))
    import torch
    import gradpool.torch as hvd
    from gradpool.codecs import TopK
    hvd.init()
    net = torch.nn.Linear(40, 1, bias=False)
    torch.nn.init.zeros_(net.weight)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), 1.0),
                                         net.named_parameters(), TopK(0.1, min_bytes=0))
    gradient, count = torch.arange(40.) * (rank + 1), 3 + 2 * rank
    for _ in range(count):
        optimizer.zero_grad()
        net(gradient).sum().backward()
        optimizer.step()
    last = hvd.join()
    sent = gradient * count - optimizer._reducer._feedback.residual('weight')
    every = hvd.allgather_object((sent, net.weight.detach()))
    wanted = sum(of_rank for of_rank, _ in every) / workers
    hvd.shutdown()
    return [every[last][1].neg().flatten().tolist(), wanted.tolist()]


class Codecs(test_ddp.Case):
    """Tests codecs without a service."""

    def setUp(self):
        self.values = numpy.random.default_rng(3).standard_normal(1001).astype(numpy.float32)

    def sent(self, codec):
        """Encodes and decodes values. Returns (decoded values, encoded bytes)."""
        from gradpool.codecs import Feedback
        feedback = Feedback(codec)
        code = feedback.encode('w', self.values)
        self.assertEqual((code.size, code.dtype), (codec.words(self.values.size), codec.dtype))
        arrived = numpy.full_like(self.values, 9)
        feedback.decode('w', code, arrived, 1)
        if codec.error_feedback:
            numpy.testing.assert_array_equal(feedback.residual('w'), self.values - arrived)
        return arrived, code

    def test_one_bit_sends_signs_and_the_mean_of_absolute_values(self):
        from gradpool.codecs import OneBit
        arrived, code = self.sent(OneBit())
        scale = numpy.float32(numpy.mean([abs(float(value)) for value in self.values]))
        wanted = [-scale if value < 0 else scale for value in self.values]
        numpy.testing.assert_array_equal(arrived, numpy.array(wanted, numpy.float32))
        self.assertEqual(code.size, 1 + 32)

    def test_top_k_sends_the_largest_values_and_no_others(self):
        from gradpool.codecs import TopK
        arrived, code = self.sent(TopK(0.02))
        kept = sorted(range(1001), key=lambda i: -abs(self.values[i]))[:20]
        wanted = numpy.zeros_like(self.values)
        wanted[kept] = self.values[kept]
        numpy.testing.assert_array_equal(arrived, wanted)
        self.assertEqual(code.size, 40)

    def test_top_k_of_many_elements_is_exact_for_any_sample(self):
        from gradpool.codecs import TopK
        values = numpy.random.default_rng(4).standard_normal(100_000).astype(numpy.float32)
        misleading = values.copy()
        misleading[::64] *= 100     # the codec's sample contains only these values
        for given in values, misleading, numpy.sort(values), numpy.zeros_like(values):
            codec = TopK(0.01)
            sent = codec.encode(given, None)
            places, found = sent[:1000], sent[1000:].view(numpy.float32)
            numpy.testing.assert_array_equal(found, given[places])
            numpy.testing.assert_array_equal(numpy.sort(abs(found)), numpy.sort(abs(given))[-1000:])
            self.assertEqual(len(set(places.tolist())), 1000)

    def test_random_k_draws_by_name_and_round(self):
        from gradpool.codecs import Feedback, RandomK
        arrived, code = self.sent(RandomK(0.1))
        self.assertEqual([code.size, numpy.count_nonzero(arrived)], [102, 100])
        places = numpy.flatnonzero(arrived)
        numpy.testing.assert_array_equal(arrived[places], self.values[places])
        one, other = Feedback(RandomK(0.1, error_feedback=False)), Feedback(RandomK(0.1))
        numpy.testing.assert_array_equal(one.encode('w', self.values),
                                         other.encode('w', self.values))
        again, elsewhere = one.encode('w', self.values), one.encode('v', self.values)
        self.assertFalse(numpy.array_equal(again, code))
        self.assertFalse(numpy.array_equal(elsewhere, code))

    def test_random_k_of_another_round_is_an_error(self):
        import gradpool
        from gradpool.codecs import Feedback, RandomK
        late, early = Feedback(RandomK(0.1)), Feedback(RandomK(0.1))
        early.encode('w', self.values)
        one, other = late.encode('w', self.values), early.encode('w', self.values)
        for others in 1, 3, 299:
            mean = (one + other * numpy.float32(others)) / numpy.float32(others + 1)
            for feedback in late, early:
                with ranks.expects(self, gradpool.Mismatch, 'another round'):
                    feedback.decode('w', mean, numpy.empty_like(self.values), others + 1)

    def test_random_k_refuses_different_marks_and_accepts_equal_ones(self):
        import gradpool
        from gradpool.codecs import RandomK
        codec, total = RandomK(0.1), numpy.empty_like(self.values)
        draw = numpy.random.default_rng(1)
        code = codec.encode(self.values, draw)
        marks = numpy.arange(-15, 16, dtype=numpy.float32)
        self.assertIn(code[0], marks)
        for workers in 2, 3, 4, 7, 300, 900:
            for mark in marks:
                each = numpy.full(workers, mark)
                code[:2] = each.mean(), (each * each).mean() * numpy.float32(1 + 1e-6)
                # a sum of several ranks differs by one or two last bits
                codec.add(code, total, draw)
                each[0] += 1
                code[:2] = each.mean(), (each * each).mean()
                with ranks.expects(self, gradpool.Mismatch, 'another round'):
                    codec.add(code, total, draw)

    def test_dithering_rounds_up_or_down_and_is_right_in_the_mean(self):
        from gradpool.codecs import Dithering, Feedback
        for bits in 2, 4, 8:
            codec = Dithering(bits)
            step = abs(self.values).max() / (2 ** (bits - 1) - 1)
            arrived, _ = self.sent(codec)
            self.assertLess(abs(arrived - self.values).max(), step * 1.001)
            numpy.testing.assert_allclose(arrived / step, numpy.round(arrived / step), atol=1e-4)
            feedback, rounds = Feedback(Dithering(bits, error_feedback=False)), 400
            total = numpy.zeros_like(self.values)
            for _ in range(rounds):
                feedback.decode('w', feedback.encode('w', self.values), arrived, 1)
                total += arrived
            # A random rounding has a standard deviation of at most half a step. The limit is six
            # standard deviations of the mean.
            self.assertLess(abs(total / rounds - self.values).max(), 3 * step / rounds ** 0.5)

    def test_unsent_values_are_sent_in_later_rounds(self):
        from gradpool.codecs import Feedback
        for name, codec in codecs_of().items():
            feedback, rounds = Feedback(codec), 60
            total = numpy.zeros(1001)
            arrived = numpy.empty_like(self.values)
            for _ in range(rounds):
                feedback.decode('w', feedback.encode('w', self.values), arrived, 1)
                total += arrived
            left = feedback.residual('w') if codec.error_feedback else 0
            numpy.testing.assert_allclose(total + left, rounds * self.values.astype(float),
                                          atol=1e-3 if codec.error_feedback else 2, err_msg=name)

    def test_an_overflow_is_reported_once(self):
        from gradpool.codecs import Dithering, Feedback, OneBit, TopK
        for codec in OneBit(), TopK(), Dithering():
            feedback, arrived = Feedback(codec), numpy.empty_like(self.values)
            bad = self.values.copy()
            bad[7] = numpy.nan
            feedback.decode('w', feedback.encode('w', bad), arrived, 1)
            self.assertTrue(numpy.isnan(arrived).any(), codec)
            feedback.decode('w', feedback.encode('w', self.values), arrived, 1)
            self.assertTrue(numpy.isfinite(arrived).all(), codec)

    def test_small_tensors_travel_uncompressed(self):
        from gradpool.codecs import OneBit, TopK
        self.assertEqual([OneBit().takes(n) for n in (0, 16383, 16384)], [False, False, True])
        # such a large part would not reduce the number of bytes
        self.assertFalse(TopK(0.5, min_bytes=0).takes(1000))

    def test_an_invalid_codec_is_refused(self):
        import gradpool
        from gradpool.codecs import Dithering, Feedback, OneBit, TopK
        for attempt, word in ((lambda: TopK(0), 'ratio'), (lambda: Dithering(5), 'bits'),
                              (lambda: TopK('a'), "'a'"), (lambda: OneBit(-1), 'min_bytes'),
                              (lambda: OneBit.compress(None), 'OneBit()'),
                              (lambda: Feedback('topk'), "'topk'"),
                              (lambda: Feedback(TopK()).encode('w', numpy.zeros(3)), 'float64')):
            with ranks.expects(self, gradpool.Mismatch, word):
                attempt()


class Training(test_ddp.Case):
    def check_coded(self, found):
        for name in codecs_of():
            for digest, wanted, carried in (of_rank[name] for of_rank in found):
                self.assertEqual(digest, wanted, name)
                self.assertEqual(carried, codecs_of()[name].error_feedback)

    def test_ranks_come_to_the_same_bits_over_shared_memory(self):
        self.check_coded(self.run_ranks('rank_trains_coded', 3, GRADPOOL_TRANSPORT='shm'))

    def test_ranks_come_to_the_same_bits_over_tcp(self):
        self.check_coded(self.run_ranks('rank_trains_coded', GRADPOOL_TRANSPORT='tcp'))

    def check_hook(self, backend):
        found = self.run_ranks('rank_wraps_the_hook', TEST_BACKEND=backend)
        for name in found[0][0]:
            self.all_equal([digests[name] for digests, _ in found])
        for name, digest in found[0][1].items():
            self.assertEqual(found[0][0][f'{name} compression_hook'], digest)

    def test_a_hook_of_torch_can_compress_on_gloo(self):
        self.check_hook('gloo')

    def test_a_hook_of_torch_can_compress_on_gradpool(self):
        self.check_hook('gradpool')

    def test_a_restart_goes_on_with_the_residuals_of_its_checkpoint(self):
        found = self.run_ranks('rank_goes_on')
        for name in found[0]:
            self.all_equal([digest for of_rank in found for digest in of_rank[name][:2]])
            self.assertNotEqual(found[0][name][0], found[0][name][2], name)

    def test_residuals_that_do_not_fit_are_refused(self):
        words = ('residuals between backward() and step(): gradients are being sent',
                 ', expected those of ', "residuals of 'x', expected names of this model",
                 "the residual of '2.weight' has 4095 elements, expected 4096",
                 'residuals of rank 7, expected its own', 'expected what state_dict()',
                 'expected what residuals.state_dict() has returned', 'this model has no codec')
        told, is_same = self.run_ranks('rank_loads_what_does_not_fit', 1)[0]
        self.assertEqual([word in text for word, text in zip(words, told)], [True] * len(words),
                         told)
        self.assertTrue(is_same)    # the refused call must have changed nothing

    def test_a_model_learns_as_well(self):
        found = self.run_ranks('rank_learns')
        plain = found[0]['none'][0]
        self.assertLess(plain, 0.4)
        for name in codecs_of():
            print(f'# {name}: loss {found[0][name][0]:.4f}, without {plain:.4f}')
            self.all_equal([of_rank[name][1] for of_rank in found])
            self.assertLess(found[0][name][0], plain + LOSS_ABOVE, name)
        self.assertIn(' where there is one tensor and no next round: expected none, fp16 or bf16',
                      found[0]['refused'])
        self.assertIn('DistributedOptimizer', found[0]['refused'])
        self.assertIn("2 of 2 are sent unchanged, such as 'weight'", found[0]['told'])

    def test_a_rank_in_join_adds_nothing_and_keeps_its_residual(self):
        for moved, wanted in self.run_ranks('rank_joins'):
            self.assertGreater(max(wanted), 0)
            self.assertEqual(moved, wanted)


if __name__ == '__main__':
    ranks.main(globals(), forks=True)
