/* Versions of a library: of the headers at build time, and of the library that was loaded. Each
 * module supplies the rows of the libraries that only it uses. */
#ifndef GRADPOOL_BASE_LIBRARY_H
#define GRADPOOL_BASE_LIBRARY_H

#define LIBRARY_VERSION_BYTES 32

struct library {
    const char *name;
    char built[LIBRARY_VERSION_BYTES];
    char running[LIBRARY_VERSION_BYTES]; /* "": this build does not use the library */
};

#endif
