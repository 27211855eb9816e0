/* The marker is a file beside the database ("state.db-used") with the number of changes that were
 * made to the database. The marker shows whether a database has lost its write-ahead log, and
 * whether a missing database was in use before. */
#ifndef GRADPOOL_COORDINATOR_STORE_STORE_MARKER_H
#define GRADPOOL_COORDINATOR_STORE_STORE_MARKER_H

#include "svc/base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct store_marker {
    int fd;          /* -1: not open for writing */
    char path[4096]; /* path of the marker */
    bool is_there;   /* a marker exists, so the database was in use before */
    /* The marker was written since the host's last boot. So the kernel has received all counted
     * changes, even if some are not on the disk. */
    bool is_of_this_boot;
    uint64_t changes; /* number of changes that were written */
    uint64_t synced;  /* number of changes that are certainly in the database file */
};

/* Reads the marker of the database at `path`, if there is one. Returns 0, or a negative errno if
 * the marker cannot be read. */
int store_marker_read(const char *path, struct store_marker *ret_marker, struct err *err);
/* Checks the file before SQLite opens it, because SQLite would delete the rest of the log. Returns
 * 0, or -EBADMSG if a database that was in use is missing or empty. */
int store_marker_check_file(const struct store_marker *marker, const char *path, struct err *err);
/* Compares the database's count of changes with the marker. Returns 0, or -EBADMSG if changes are
 * missing. After a restart of the host, a missing change is an error only if the change was on the
 * disk; other missing changes are logged. */
int store_marker_check(const struct store_marker *marker, const char *path, uint64_t changes,
                       struct err *err);
/* Creates the marker, or opens it for writing. Returns 0 or a negative errno. */
int store_marker_open(struct store_marker *marker, struct err *err);
/* Writes the marker without waiting for the disk. */
void store_marker_write(struct store_marker *marker);

#endif
