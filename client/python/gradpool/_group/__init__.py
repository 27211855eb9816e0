"""A process group of torch.distributed: its operations, and the check that all ranks call the same
operations."""
