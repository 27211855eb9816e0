/* The state directory, and the lock that prevents a second coordinator. */
#ifndef GRADPOOL_COORDINATOR_STORE_STATE_DIR_H
#define GRADPOOL_COORDINATOR_STORE_STATE_DIR_H

#include "svc/base/err.h"

#include <stddef.h>

/* Writes the absolute form of `path`, which need not exist. Returns 0, or -EINVAL if the path is
 * empty or too long, or if there is no current directory. */
int state_dir_whole(const char *path, char *buffer, size_t buffer_bytes, struct err *err);
/* Creates the directory and missing parents. Returns 0, -EPERM if other users could write to the
 * directory or replace it, or another negative errno. */
int state_dir_create(const char *path, struct err *err);
/* Gives a group access to the state directory (mode 0710) and to the socket in it. Returns 0,
 * -EINVAL if there is no such group, -EPERM if this user may not assign files to the group, or
 * another negative errno. */
int state_dir_admit(const char *path, const char *socket, const char *group, struct err *err);
/* Locks the state directory while the descriptor is open. Returns 0, or -EBUSY; `err` then names
 * the process that holds the lock. */
int state_dir_lock(const char *path, int *ret_fd, struct err *err);

#endif
