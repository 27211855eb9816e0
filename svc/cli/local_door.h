/* The way of operators' commands to a service on this host: its Unix socket, which needs no key. */
#ifndef GRADPOOL_CLI_LOCAL_DOOR_H
#define GRADPOOL_CLI_LOCAL_DOOR_H

#include "svc/channel/channel.h"
#include "svc/endpoint/endpoint.h"

/* A connection that has said hello, over the socket at `path`, if the service there listens at
 * `endpoint`: -ENXIO if it is another service; else the error of connecting or greeting. Waits for
 * a second at most. */
int local_door_open(const struct endpoint *endpoint, const char *path,
                    struct channel **ret_channel);
/* The same, with the socket in the state dir that `gradpool serve` of this user has unless told:
 * that of GRADPOOL_STATE_DIR, or the default one. */
int local_door_open_default(const struct endpoint *endpoint, struct channel **ret_channel);

#endif
