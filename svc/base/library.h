/* Versions of a library: of the headers at build time, and of the library that the loader found.
 * Each module supplies the rows of the libraries that it alone uses. */
#ifndef GRADPOOL_BASE_LIBRARY_H
#define GRADPOOL_BASE_LIBRARY_H

#define LIBRARY_VERSION_BYTES 32

struct library {
    const char *name;
    char built[LIBRARY_VERSION_BYTES];
    char running[LIBRARY_VERSION_BYTES]; /* empty: this build does not use the library */
};

#endif
