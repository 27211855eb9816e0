/* Connects operators' commands to a service on this host over its Unix socket, which needs no
 * key. */
#ifndef GRADPOOL_CLI_LOCAL_DOOR_H
#define GRADPOOL_CLI_LOCAL_DOOR_H

#include "svc/channel/channel.h"
#include "svc/endpoint/endpoint.h"

/* Opens a greeted connection over the socket at `path`, if the service there listens at `endpoint`.
 * -ENXIO: another service; other errors: of connecting or greeting. Waits for at most a second. */
int local_door_open(const struct endpoint *endpoint, const char *path,
                    struct channel **ret_channel);
/* The same for the socket in the state directory of this user's `gradpool serve`:
 * GRADPOOL_STATE_DIR, or the default. */
int local_door_open_default(const struct endpoint *endpoint, struct channel **ret_channel);

#endif
