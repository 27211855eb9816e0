/* The version of a library: of the headers at build time, and of the library that the loader found.
 * Each module fills in the libraries that only it uses. */
#ifndef GRADPOOL_BASE_LIBRARY_H
#define GRADPOOL_BASE_LIBRARY_H

#define LIBRARY_VERSION_BYTES 32

struct library {
    const char *name;
    char built[LIBRARY_VERSION_BYTES];
    char running[LIBRARY_VERSION_BYTES]; /* empty: this build does without it */
};

#endif
