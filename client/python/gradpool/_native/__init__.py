"""The C library in Python: its prototypes, its handles, memory that it reads in place."""
