/* How often a database was changed, in a file beside it ("state.db-used"): without it a database
 * whose write-ahead log is gone, or that is gone itself, would pass for an older or a new one. */
#ifndef GRADPOOL_COORDINATOR_STORE_STORE_MARKER_H
#define GRADPOOL_COORDINATOR_STORE_STORE_MARKER_H

#include "svc/base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct store_marker {
    int fd;               /* -1: not open for writing */
    char path[4096];      /* of the marker */
    bool is_there;        /* the database was used before */
    bool is_of_this_boot; /* of this host: what it names was written, if not on disk */
    uint64_t changes;     /* that were written */
    uint64_t synced;      /* of these, sure to be in the database's file */
};

/* Reads the marker of the database at `path`, if there is one. -EPERM, -ELOOP, ...: it cannot be
 * read. */
int store_marker_read(const char *path, struct store_marker *ret_marker, struct err *err);
/* -EBADMSG: the database was used, and its file is missing or empty. Looks before SQLite does,
 * which would delete what is left of the log. */
int store_marker_check_file(const struct store_marker *marker, const char *path, struct err *err);
/* -EBADMSG: `changes`, as the database has it, are fewer than were written. After a restart of the
 * host only those count that were on disk; of others a warning tells. */
int store_marker_check(const struct store_marker *marker, const char *path, uint64_t changes,
                       struct err *err);
/* Makes it, or takes it over. -EACCES, ... */
int store_marker_open(struct store_marker *marker, struct err *err);
/* The count is not sure to be on disk either: one small write. */
void store_marker_write(struct store_marker *marker);

#endif
