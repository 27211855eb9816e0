"""Codecs send gradients in fewer bytes. The unsent part is added to the gradient of the next round.

    gradpool.ddp.attach(model, compression=gradpool.codecs.TopK(0.01))

A codec encodes and decodes gradients. A Feedback stores the unsent part of each gradient (the
residual) by name, and counts rounds. Codes of OneBit, TopK and Dithering cannot be added. Such
codes are gathered; every rank decodes them and adds the values in rank order, so all ranks have the
same bits (Y17). RandomK sends the same places on every rank, so the service computes the mean.

    OneBit     a sign for each element, and the mean of the absolute values (Seide et al. 2014;
               Karimireddy et al. 2019, error feedback)
    TopK       the largest values of a tensor, with their places (Aji and Heafield 2017)
    RandomK    values at random places (Stich et al. 2018)
    Dithering  the step below or above each value, chosen at random so that the expected value is
               correct (Alistarh et al. 2017, with the norm as scale, here the maximum)

Gradients are float32 on the CPU: numpy arrays, or torch tensors by their numpy(). Random numbers
are seeded by (name, round), and are equal on all ranks with one version of numpy."""
import zlib

import numpy

from .errors import mismatch

# for shorter tensors a round costs more than the transfer of the bytes that a codec saves
MIN_BYTES = 65536
_WORD_BITS = 32
_BYTE_BITS = 8
# RandomK's marks are integers from -_MARK_MAX to _MARK_MAX. They and their squares are exact even
# in bfloat16. If one of W marks differs by 1, the variance is (W - 1) / W ** 2. Up to W = 998 this
# is above _VARIANCE_MIN, while rounding of the means in float32 causes less than 0.0001.
_MARK_MAX, _VARIANCE_MIN = 15, 0.001
# Every _SAMPLE_STEP-th value is a sample, which estimates the size of the largest values.
# _SAMPLE_SPARE is the margin of the estimate.
_SAMPLE_STEP, _SAMPLE_SPARE = 64, 16


def _words_of(bits):
    return -(-bits // _WORD_BITS)


def _head(words, scale):
    """Stores the scale in the first word."""
    words[:1].view(numpy.float32)[0] = scale


class Codec:
    """Base class of codecs for gradients of float32. Callers use the following methods, whose
    arguments are one-dimensional numpy arrays:

    words(elements)             number of values of `dtype` in the code
    encode(values, draw)        the code; `draw` is a numpy.random.Generator, the same on every rank
    add(sent, total, draw, by)  adds the decoded values, times `by`, to `total`

    min_bytes       tensors of fewer bytes are sent without the codec
    error_feedback  the unsent part is added to the gradient of the next round"""
    operation, dtype = 'gather', 'int32'

    def __init__(self, min_bytes=MIN_BYTES, error_feedback=True):
        if not isinstance(min_bytes, int) or min_bytes < 0:
            raise mismatch(f'min_bytes is {min_bytes!r}, expected a number of bytes')
        self.min_bytes, self.error_feedback = min_bytes, error_feedback

    def takes(self, elements):
        """Returns whether the codec applies to a tensor of that size."""
        return elements > 0 and elements * 4 >= self.min_bytes \
            and self.words(elements) < elements

    @classmethod
    def compress(cls, _):
        """Raises an error if the codec is used as a class of gradpool.torch.Compression, which
        stores no values for the next round."""
        raise mismatch(f'{cls.__name__} where there is one tensor and no next round: expected '
                       'none, fp16 or bf16. Codecs are for DistributedOptimizer and attach(), as '
                       f'{cls.__name__}()')

    def __repr__(self):
        told = ', '.join(f'{name}={value!r}' for name, value in sorted(vars(self).items()))
        return f'{type(self).__name__}({told})'


class OneBit(Codec):
    """Sends a sign for each element, and one scale."""

    def words(self, elements):
        return 1 + _words_of(elements)

    def encode(self, values, draw):
        sent = numpy.zeros(self.words(values.size), numpy.int32)
        _head(sent, numpy.abs(values).mean(dtype=numpy.float64))
        bits = numpy.packbits(values < 0)
        sent[1:].view(numpy.uint8)[:bits.size] = bits
        return sent

    def add(self, sent, total, draw, by=1):
        scale = sent[:1].view(numpy.float32)[0] * numpy.float32(by)
        bits = numpy.unpackbits(sent[1:].view(numpy.uint8), count=total.size)
        total += numpy.array([scale, -scale], numpy.float32)[bits]


class _Sparse(Codec):
    def __init__(self, ratio=0.01, min_bytes=MIN_BYTES, error_feedback=True):
        super().__init__(min_bytes, error_feedback)
        if not isinstance(ratio, (int, float)) or not 0 < ratio <= 1:
            raise mismatch(f'ratio is {ratio!r}, expected a number above 0, of 1 at most')
        self.ratio = ratio

    def kept(self, elements):
        """Returns the number of values in the code for `elements` elements."""
        return max(1, round(elements * self.ratio))


def _largest(sizes, count):
    """Returns the places of the `count` largest values; NaN counts as the largest value. A sample
    gives a bound below the largest values. Only values above the bound are compared exactly, which
    needs a seventh of the time."""
    sample = sizes[::_SAMPLE_STEP]
    wanted = 2 * count // _SAMPLE_STEP + _SAMPLE_SPARE
    if 2 * wanted < sample.size:
        least = numpy.partition(sample, sample.size - wanted)[sample.size - wanted]
        places = numpy.flatnonzero(~(sizes < least))
        if places.size >= count:
            return places[_largest_of_all(sizes[places], count)]
    return _largest_of_all(sizes, count)


def _largest_of_all(sizes, count):
    return numpy.argpartition(sizes, sizes.size - count)[sizes.size - count:]


class TopK(_Sparse):
    """Sends the largest values of a tensor. `ratio`: fraction of the values that is sent."""

    def words(self, elements):
        return 2 * self.kept(elements)

    def encode(self, values, draw):
        places = numpy.sort(_largest(numpy.abs(values), self.kept(values.size))).astype(numpy.int32)
        return numpy.concatenate([places, values[places].view(numpy.int32)])

    def add(self, sent, total, draw, by=1):
        places, values = sent[:sent.size // 2], sent[sent.size // 2:].view(numpy.float32)
        total[places] += values * numpy.float32(by)


class RandomK(_Sparse):
    """Sends values at random places. `ratio`: fraction of the values that is sent. Each round has
    other places, the same on every rank. The first two values of a code are a random mark and its
    square. They detect ranks in different rounds: the mean of the squares is the square of the mean
    only if all marks are equal. Every rank gets the same means, so either all ranks detect the
    difference or none does."""
    operation, dtype = 'mean', 'float32'

    def words(self, elements):
        return 2 + self.kept(elements)

    def _drawn(self, elements, draw):
        """Returns (the mark, the places of the values)."""
        return (numpy.float32(draw.integers(-_MARK_MAX, _MARK_MAX + 1)),
                draw.choice(elements, self.kept(elements), replace=False, shuffle=False))

    def encode(self, values, draw):
        mark, places = self._drawn(values.size, draw)
        return numpy.concatenate([[mark, mark * mark], values[places]])

    def add(self, sent, total, draw, by=1):
        _, places = self._drawn(total.size, draw)
        mean, of_squares = map(float, sent[:2])
        if abs(of_squares - mean * mean) > _VARIANCE_MIN:
            raise mismatch('RandomK: the other ranks have drawn other positions, because they '
                           'are in another round: load residuals of one step on all ranks, or '
                           'on none')
        total[places] += sent[2:] * numpy.float32(by)


class Dithering(Codec):
    """Sends each element as one of 2 ** bits - 1 steps from minus the maximum to the maximum: the
    step below or above the element, chosen at random so that the mean is right."""

    def __init__(self, bits=4, min_bytes=MIN_BYTES, error_feedback=True):
        super().__init__(min_bytes, error_feedback)
        if bits not in (2, 4, 8):
            raise mismatch(f'bits is {bits!r}, expected 2, 4 or 8')
        self.bits = bits

    def _most(self):
        return 2 ** (self.bits - 1) - 1

    def words(self, elements):
        return 1 + _words_of(elements * self.bits)

    def encode(self, values, draw):
        sent = numpy.zeros(self.words(values.size), numpy.int32)
        most = self._most()
        scale = numpy.float32(numpy.abs(values).max() / numpy.float32(most))
        _head(sent, scale)
        steps = draw.random(values.size, numpy.float32)
        if scale > 0:
            steps += values / scale
        steps = numpy.clip(numpy.floor(steps), -most, most).astype(numpy.int8) + numpy.int8(most)
        self._pack(steps.view(numpy.uint8), sent[1:].view(numpy.uint8))
        return sent

    def _pack(self, steps, bytes_):
        """Packs element i into byte i modulo the number of bytes."""
        for lane in range(_BYTE_BITS // self.bits):
            part = steps[lane * bytes_.size:(lane + 1) * bytes_.size]
            bytes_[:part.size] |= part << numpy.uint8(lane * self.bits)

    def add(self, sent, total, draw, by=1):
        scale = sent[:1].view(numpy.float32)[0] * numpy.float32(by)
        table = (numpy.arange(2 ** self.bits, dtype=numpy.float32) - self._most()) * scale
        bytes_ = sent[1:].view(numpy.uint8)
        for lane in range(_BYTE_BITS // self.bits):
            part = total[lane * bytes_.size:(lane + 1) * bytes_.size]
            steps = bytes_[:part.size] >> numpy.uint8(lane * self.bits)
            part += table[steps & numpy.uint8(2 ** self.bits - 1)]


def flat(values):
    """Returns a float32 array or torch tensor as a flat numpy array on the same memory."""
    array = values.detach().numpy() if hasattr(values, 'detach') else values
    if array.dtype != numpy.float32:
        raise mismatch(f'a gradient of {array.dtype}, expected float32')
    if not array.flags.c_contiguous:
        raise mismatch('a gradient that is not contiguous; make a contiguous copy first')
    return array.reshape(-1)


class Feedback:
    """Residuals and numbers of rounds of a codec, by name. Every rank encodes a name equally often.

        sent = feedback.encode('fc.weight', gradient)
        received = ...                  # gathered data of codec.dtype, or their mean
        feedback.decode('fc.weight', received, mean)"""

    def __init__(self, codec):
        if not isinstance(codec, Codec):
            raise mismatch(f'compression is {codec!r}, expected OneBit(), TopK(), RandomK() or '
                           'Dithering() of gradpool.codecs')
        self.codec = codec
        self._rounds, self._residuals = {}, {}

    def _draw(self, name):
        seed = [zlib.crc32(name.encode()), self._rounds[name]]
        return numpy.random.Generator(numpy.random.PCG64(seed))

    def encode(self, name, gradient):
        """Returns the code of a name for the next round."""
        # NaN and infinity need no warning: they are sent
        with numpy.errstate(invalid='ignore', over='ignore'):
            return self._encode(name, flat(gradient))

    def _encode(self, name, values):
        self._rounds[name] = self._rounds.get(name, 0) + 1
        if not self.codec.error_feedback:
            return self.codec.encode(values, self._draw(name))
        known = self._residuals.get(name)
        whole = values.copy() if known is None else numpy.add(known, values, out=known)
        sent = self.codec.encode(whole, self._draw(name))
        self.codec.add(sent, whole, self._draw(name), -1)
        # An infinite residual is dropped, or every later round would be infinite.
        self._residuals[name] = whole if numpy.isfinite(whole.sum()) else None
        return sent

    def decode(self, name, sent, mean, workers):
        """Decodes the last round of a name from the received codes, and writes the mean to
        `mean`."""
        total = flat(mean)
        total.fill(0)
        is_mean = self.codec.operation == 'mean'
        with numpy.errstate(invalid='ignore', over='ignore'):
            for of_rank in _flat_code(sent).reshape(1 if is_mean else workers, -1):
                self.codec.add(of_rank, total, self._draw(name))
            if not is_mean:
                total /= numpy.float32(workers)

    def residual(self, name):
        """Returns the residual of the tensor: values that no push has sent yet; None: there are no
        such values."""
        return self._residuals.get(name)

    def state_dict(self):
        """Returns a copy of the whole state for a checkpoint. Called between two rounds."""
        residuals = {name: one.copy() for name, one in self._residuals.items() if one is not None}
        return {'codec': repr(self.codec), 'rounds': dict(self._rounds), 'residuals': residuals}

    def load_state_dict(self, state, elements):
        """Replaces residuals and rounds. An empty state deletes them. Raises Mismatch and changes
        nothing if the state is of another codec, or its names or sizes differ from those of {name:
        elements}."""
        rounds, residuals = self._checked(state, elements) if state else ({}, {})
        self._rounds, self._residuals = dict(rounds), residuals

    def _checked(self, state, elements):
        """Returns (rounds, copies of the residuals) of a state, or raises Mismatch."""
        if not isinstance(state, dict) or state.keys() != {'codec', 'rounds', 'residuals'}:
            raise mismatch(f'residuals are {state!r:.80}, expected what state_dict() has returned')
        if state['codec'] != repr(self.codec):
            raise mismatch(f"residuals of {state['codec']}, expected those of {self.codec!r}: use "
                           'the codec that they were saved with, or load none')
        for name in (*state['rounds'], *state['residuals']):
            if name not in elements:
                raise mismatch(f"residuals of '{name}', expected names of this model: "
                               f"{', '.join(list(elements)[:5])} ...; load what was saved with it")
        residuals = {name: flat(one.cpu() if hasattr(one, 'cpu') else one).copy()
                     for name, one in state['residuals'].items()}
        for name, one in residuals.items():
            if one.size != elements[name]:
                raise mismatch(f"the residual of '{name}' has {one.size} elements, expected "
                               f'{elements[name]}; load what was saved with this model')
        return state['rounds'], residuals


def _flat_code(sent):
    return (sent.numpy() if hasattr(sent, 'detach') else sent).reshape(-1)
