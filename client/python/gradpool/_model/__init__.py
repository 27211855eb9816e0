"""A model in DistributedDataParallel: its buckets, the names of its tensors in the job, its
codecs."""
