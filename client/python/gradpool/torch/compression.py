"""Forms of gradients that travel."""
import torch

from ..codecs import Dithering, OneBit, RandomK, TopK


class NoneCompressor:
    """Sends the values unchanged."""

    @staticmethod
    def compress(tensor):
        """(what travels, what decompress() must know)"""
        return tensor, None

    @staticmethod
    def decompress(tensor, _):
        return tensor


def _half(dtype):
    class Half:
        """Floats of more bits travel as halves; they are summed in float32 and rounded once."""

        @staticmethod
        def compress(tensor):
            travels = tensor.to(dtype) if tensor.is_floating_point() else tensor
            return travels, tensor.dtype

        @staticmethod
        def decompress(tensor, was):
            return tensor.to(was)
    return Half


class Compression:
    """Values for `compression`; a class of one's own with compress() and decompress() will
    do, too. To DistributedOptimizer also a codec: topk(0.01), onebit() and so on."""
    none = NoneCompressor
    fp16 = _half(torch.float16)
    bf16 = _half(torch.bfloat16)
    onebit, topk, randomk, dithering = OneBit, TopK, RandomK, Dithering
