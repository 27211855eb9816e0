/* Tenants: owners of jobs, each known by its key. The local tenant ("") owns jobs of connections
 * without a key: over the Unix socket, or over plain TCP where that is allowed. */
#ifndef GRADPOOL_COORDINATOR_PEER_TENANT_H
#define GRADPOOL_COORDINATOR_PEER_TENANT_H

#include "svc/base/list.h"
#include "svc/channel/key.h"
#include "svc/coordinator/loop/turns.h"
#include "svc/coordinator/store/store.h"
#include "svc/wire/limit.h"

#define TENANT_PREFIX_BYTES (KEY_TENANT_BYTES_MAX + 2)

struct service;

/* Lives as long as the service, so jobs and peers may point to it. */
struct tenant {
    struct list link; /* node of door.tenants; the local tenant is first */
    struct key key;
    bool is_operator; /* may add aggregators and see all jobs */
    bool is_revoked;
    struct limits limits;     /* own limits, else those of the service */
    struct party party;       /* turns of its connections (turns.h) */
    uint64_t frame_bytes;     /* bytes reserved for its long messages (frames.c) */
    uint32_t connections;     /* number of its connections over TCP */
    uint64_t regions;         /* regions lent to the lane that is being counted */
    uint64_t regions_most;    /* regions lent to the lane with the most, at the last count */
    uint64_t lent, lent_most; /* bytes lent: to the aggregator being counted, and the most */
    uint64_t added_s;         /* seconds since 1970; 0: the local tenant */
    uint32_t loss_limit_ppm;  /* limit of each of its jobs; 0: none is named */
};

/* Creates the local tenant. -ENOMEM. */
int tenants_init(struct service *s);
void tenants_destroy(struct service *s);
int tenants_restore(struct service *s, const struct store_tenant *row);
struct tenant *tenants_local(struct service *s);
/* Whether some tenant that is no operator has a key: then new jobs need a key (K97). */
bool tenants_have_keys(struct service *s);
/* The tenant, also a revoked one; NULL: never added. */
struct tenant *tenants_find(struct service *s, const char *name);
/* Whether there is only the local tenant, so that no share is kept for others. */
bool tenants_has_one(const struct service *s);
/* Writes the prefix of a job's name, "" or "acme/"; `buffer` has TENANT_PREFIX_BYTES. Returns
 * `buffer`. */
const char *tenant_prefix(const struct tenant *tenant, char *buffer);
/* Lookup for channel_accept_keys(); `context` is the service. -ENOENT, -EKEYREVOKED. */
int tenants_find_key(void *context, const char *name, struct key *ret_key);

/* Creates a tenant that is not stored yet. NULL: no memory. */
struct tenant *tenant_create(struct service *s, const char *name);
void tenant_destroy(struct tenant *tenant);
/* Stores the tenant, and waits until the secret is on the disk. */
int tenant_keep(struct service *s, const struct tenant *tenant, struct err *err);
/* Number of tenants, without the local one. */
size_t tenants_count(struct service *s);
void tenant_adopt_limits(struct tenant *tenant, const struct limits *limits);
/* Writes "tenant acme", or a phrase for the local tenant. Returns `buffer`. */
const char *tenant_title(const struct tenant *tenant, char *buffer, size_t buffer_bytes);

#endif
