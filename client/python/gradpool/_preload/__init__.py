"""The parent of workers with preloaded modules (gradpool run --preload): imports modules once, and
forks the workers."""
