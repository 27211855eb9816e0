/* A client: where the service is, and how this process talks to it. */
#ifndef GRADPOOL_CLIENT_LIB_SESSION_CLIENT_H
#define GRADPOOL_CLIENT_LIB_SESSION_CLIENT_H

#include "client/gradpool.h"
#include "svc/base/list.h"
#include "svc/channel/channel.h"
#include "svc/channel/key.h"
#include "svc/endpoint/endpoint.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define CLIENT_WORKERS_MAX 768
#define CLIENT_PROGRAM "libgradpool " GP_VERSION
#define CLIENT_ENDPOINT_BYTES 320

enum client_transport { TRANSPORT_AUTO, TRANSPORT_SHM, TRANSPORT_TCP };
extern const char *const client_transports[]; /* their names */

struct gp_client {
    unsigned generation; /* generation.h */
    struct endpoint endpoint;
    /* addresses of the endpoint when the client connected (L13) */
    struct endpoint_addresses addresses;
    char endpoint_text[CLIENT_ENDPOINT_BYTES];
    bool has_key; /* connections to the coordinator speak TLS with `key` */
    struct key key;
    enum client_transport transport;
    char *interface_name; /* NULL: any */
    uint64_t connect_timeout_ns, timeout_ns;
    uint64_t stall_ns, progress_ns; /* until a wait is logged, between progress lines; 0: never */
    uint64_t eager_bytes;           /* longest input that travels with READY (W6) */
    pthread_mutex_t lock;           /* guards the two lists; a leaf: no lock is taken under it */
    struct list jobs;               /* of gp_job.node: jobs of the client */
    struct list abandoned;          /* of gp_request.node: requests whose job was left */
};

/* A channel to the coordinator with an operator's rights, beside a job's session (L37, L90). Its
 * socket is stored in `*fd` (-1 before) under `lock` as soon as there is one. After an error `*fd`
 * may be open, and `*ret_channel` set. */
int client_connect_operator(const gp_client *client, pthread_mutex_t *lock, int *fd,
                            struct channel **ret_channel, struct err *err);
/* With that lock. `channel` NULL: none. */
void client_disconnect_operator(int *fd, struct channel *channel);
/* The tenant that owns the client's jobs; "-" without a key. */
static inline const char *client_tenant(const gp_client *client)
{
    return client->has_key ? client->key.tenant : "-";
}
void client_free(gp_client *client);

#endif
