/* libfabric, which this process loads when it first opens a fabric across hosts. Loading takes
 * 0.2 s, most of it in constructors of libraries below libfabric, so a program that opens no such
 * fabric starts without it. */
#ifndef GRADPOOL_FABRIC_OFI_LIBRARY_LIBRARY_H
#define GRADPOOL_FABRIC_OFI_LIBRARY_LIBRARY_H

/* Loads libfabric and initializes its providers. Any thread may call this function at any time. The
 * library is never unloaded. After an error the next call tries again. Returns 0, -ELIBACC (the
 * library cannot be loaded), -ELIBBAD (the library lacks a function, or the version of a function
 * for which this program was compiled), -EMFILE, -ENFILE or -ENOMEM. The reason of -ELIBACC and
 * -ELIBBAD is logged once.
 *
 * library.c defines the six functions of <rdma/fabric.h> that libfabric exports and gradpool uses.
 * Before a successful load these functions fail, return NULL, or return 0. */
int ofi_library_load(void);
/* Makes each later fork() wait for the end of a load, as fabric_watch_forks(). */
void ofi_library_watch_forks(void);

#endif
