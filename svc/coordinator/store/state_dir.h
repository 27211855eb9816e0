/* The state directory, and the lock that excludes a second coordinator. */
#ifndef GRADPOOL_COORDINATOR_STORE_STATE_DIR_H
#define GRADPOOL_COORDINATOR_STORE_STATE_DIR_H

#include "svc/base/err.h"

#include <stddef.h>

/* Writes the absolute form of `path`, which need not exist. -EINVAL: empty, too long, or no current
 * folder. */
int state_dir_whole(const char *path, char *buffer, size_t buffer_bytes, struct err *err);
/* Creates the directory and missing parents. -EPERM: other users could write to it or
 * replace it. */
int state_dir_create(const char *path, struct err *err);
/* Gives the group access to the state directory (mode 0710) and to the socket in it. -EINVAL: no
 * such group; -EPERM: this user may not give files to the group. */
int state_dir_admit(const char *path, const char *socket, const char *group, struct err *err);
/* Locks the state directory for as long as the descriptor is open. -EBUSY: `err` names the
 * process that has the lock. */
int state_dir_lock(const char *path, int *ret_fd, struct err *err);

#endif
