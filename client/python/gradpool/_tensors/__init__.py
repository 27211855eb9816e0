"""Forms of torch's tensors for sending: dtypes, devices, sparse rows, pieces of changing
lengths."""
