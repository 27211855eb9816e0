/* Connects an operator's commands to a service on this host over its Unix socket, which needs no
 * key. */
#ifndef GRADPOOL_CLI_LOCAL_DOOR_H
#define GRADPOOL_CLI_LOCAL_DOOR_H

#include "svc/channel/channel.h"
#include "svc/endpoint/endpoint.h"

/* Connects to the socket at `path` and exchanges Hello and Welcome. Waits for a second at most.
 * Returns 0, -ENXIO if the service there does not listen at `endpoint`, or another negative
 * errno. */
int local_door_open(const struct endpoint *endpoint, const char *path,
                    struct channel **ret_channel);
/* Like local_door_open(), for the socket in the state directory of this user's `gradpool serve`:
 * GRADPOOL_STATE_DIR, or the default. */
int local_door_open_default(const struct endpoint *endpoint, struct channel **ret_channel);

#endif
