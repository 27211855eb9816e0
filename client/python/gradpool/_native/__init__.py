"""ctypes interface to the C library: its prototypes, its handles, and the memory that it reads."""
