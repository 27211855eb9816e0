"""Objects of which each process has one, shared by all modules of the package."""
