/* Connections beside a job's session, on which a worker asks about its own job as an operator
 * would: for a timeline, and for the state that lanes keep. README: L37, L90. */
#ifndef GRADPOOL_CLIENT_LIB_SESSION_OPERATOR_H
#define GRADPOOL_CLIENT_LIB_SESSION_OPERATOR_H

#include "client/lib/session/client.h"
#include "svc/channel/channel.h"

/* A channel to the coordinator with an operator's rights. Its socket is stored in `*fd` (-1 before)
 * under `lock` as soon as there is one. After an error `*fd` may be open, and `*ret_channel` set:
 * the caller closes both. */
int operator_connect(const gp_client *client, pthread_mutex_t *lock, int *fd,
                     struct channel **ret_channel, struct err *err);
/* The tenant that owns the client's jobs; "-" without a key. */
const char *operator_tenant(const gp_client *client);

#endif
