"""Objects of one process that all modules of the package share."""
