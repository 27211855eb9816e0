"""A model in DistributedDataParallel: its buckets, its names in the job, its codecs."""
