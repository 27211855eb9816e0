/* A client: the address of the service, and the settings of its connections. */
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
extern const char *const client_transports[]; /* names of the transports */

struct gp_client {
    unsigned generation; /* see process.h */
    struct endpoint endpoint;
    /* addresses of the endpoint, found by gp_connect() (L13) */
    struct endpoint_addresses addresses;
    char endpoint_text[CLIENT_ENDPOINT_BYTES];
    bool has_key; /* connections to the coordinator use TLS with `key` */
    struct key key;
    enum client_transport transport;
    char *interface_name; /* NULL: any */
    uint64_t connect_timeout_ns, timeout_ns;
    /* waiting time before a log line, and interval of progress lines; 0: never */
    uint64_t stall_ns, progress_ns;
    uint64_t eager_bytes; /* longest input that is sent with READY (W6) */
    /* protects the two lists; a thread that holds this lock acquires no other lock */
    pthread_mutex_t lock;
    struct list jobs;      /* list of gp_job.node: jobs of the client */
    struct list abandoned; /* list of gp_request.node: requests whose job was left */
};

/* Opens a channel to the coordinator with the role of an operator's command, in addition to the
 * session of a job (L37, L90). The new socket is stored in `*fd` (-1 before) under `lock` at once.
 * After an error `*fd` may be open, and `*ret_channel` may be set. */
int client_connect_operator(const gp_client *client, pthread_mutex_t *lock, int *fd,
                            struct channel **ret_channel, struct err *err);
/* Closes the channel. The caller holds `lock` of client_connect_operator(). `channel` may be
 * NULL. */
void client_disconnect_operator(int *fd, struct channel *channel);
/* Returns the tenant that owns the client's jobs; "-" without a key. */
static inline const char *client_tenant(const gp_client *client)
{
    return client->has_key ? client->key.tenant : "-";
}
void client_free(gp_client *client);

#endif
