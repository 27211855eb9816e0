"""The C library in Python: its prototypes, its handles, and memory that it reads in place."""
