"""Conversions of gradients for sending."""
import torch

from ..codecs import Dithering, OneBit, RandomK, TopK


class NoneCompressor:
    """Sends the values unchanged."""

    @staticmethod
    def compress(tensor):
        """Returns (values to be sent, argument of decompress())."""
        return tensor, None

    @staticmethod
    def decompress(tensor, _):
        return tensor


def _half(dtype):
    class Half:
        """Sends wider floats as 16-bit floats. Lanes sum them in float32 and round once."""

        @staticmethod
        def compress(tensor):
            travels = tensor.to(dtype) if tensor.is_floating_point() else tensor
            return travels, tensor.dtype

        @staticmethod
        def decompress(tensor, was):
            return tensor.to(was)
    return Half


class Compression:
    """Values of the argument `compression`. A class with compress() and decompress() is also
    possible, and for DistributedOptimizer a codec: topk(0.01), onebit() and so on."""
    none = NoneCompressor
    fp16 = _half(torch.float16)
    bf16 = _half(torch.bfloat16)
    onebit, topk, randomk, dithering = OneBit, TopK, RandomK, Dithering
