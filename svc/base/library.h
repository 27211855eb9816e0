/* Versions of a library: the version of the headers at build time, and the version of the loaded
 * library. Each module that uses a library fills in the struct for this library. */
#ifndef GRADPOOL_BASE_LIBRARY_H
#define GRADPOOL_BASE_LIBRARY_H

#define LIBRARY_VERSION_BYTES 32

struct library {
    const char *name;
    char built[LIBRARY_VERSION_BYTES];
    char running[LIBRARY_VERSION_BYTES]; /* "": this build does not use the library */
};

#endif
