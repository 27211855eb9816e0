"""A process group of torch.distributed: its operations, and how its ranks agree on them."""
