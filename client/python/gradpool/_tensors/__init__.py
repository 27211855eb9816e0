"""Tensors of torch as they are sent: dtypes, devices, sparse rows, lengths."""
