"""Tensors of torch as they travel: dtypes, devices, sparse rows, lengths."""
