"""Objects that exist once in a process and are shared by all modules of the package."""
