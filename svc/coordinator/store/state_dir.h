/* The state directory, and the lock that keeps a second coordinator out. */
#ifndef GRADPOOL_COORDINATOR_STORE_STATE_DIR_H
#define GRADPOOL_COORDINATOR_STORE_STATE_DIR_H

#include "svc/base/err.h"

#include <stddef.h>

/* As others must be told of it: absolute. `path` may not exist yet. */
int state_dir_whole(const char *path, char *buffer, size_t buffer_bytes, struct err *err);
/* Creates what is missing. -EPERM: others can write it, or replace it as a whole. */
int state_dir_create(const char *path, struct err *err);
/* Lets the group through the state dir (mode 0710) to the socket in it. -EINVAL: no such group;
 * -EPERM: this user may not give them to it. */
int state_dir_admit(const char *path, const char *socket, const char *group, struct err *err);
/* -EBUSY, naming who holds it. The descriptor is the lock. */
int state_dir_lock(const char *path, int *ret_fd, struct err *err);

#endif
