/* Tenants own jobs and have keys. The local tenant ("") owns the jobs of connections without a key:
 * over the Unix socket, or over plain TCP where this is allowed. */
#ifndef GRADPOOL_COORDINATOR_PEER_TENANT_H
#define GRADPOOL_COORDINATOR_PEER_TENANT_H

#include "svc/base/list.h"
#include "svc/channel/key.h"
#include "svc/coordinator/loop/turns.h"
#include "svc/coordinator/store/store.h"
#include "svc/wire/limit.h"

#define TENANT_PREFIX_BYTES (KEY_TENANT_BYTES_MAX + 2)

struct service;

/* A tenant. It is freed only with the service, so jobs and peers may point to it. */
struct tenant {
    struct list link; /* node in door.tenants; the local tenant is first */
    struct key key;
    bool is_operator; /* the tenant's key may add aggregators and list all jobs */
    bool is_revoked;
    struct limits limits; /* the tenant's own limits; an unset limit has the value of the service */
    struct party party;   /* all connections of the tenant share one turn (turns.h) */
    uint64_t frame_bytes; /* memory reserved for long messages of the tenant (frames.c) */
    uint32_t connections; /* number of TCP connections of the tenant */
    /* memory regions that the tenant's workers have registered on the lane that is being counted */
    uint64_t regions;
    uint64_t regions_most; /* largest number of regions on one lane, at the last count */
    /* lent: bytes that the tenant's workers lend to the aggregator that is being counted.
     * lent_most: largest such sum of any aggregator. */
    uint64_t lent, lent_most;
    uint64_t added_s;        /* creation in seconds since 1970; 0: the local tenant */
    uint32_t loss_limit_ppm; /* loss limit for each job of the tenant, in millionths; 0: none */
};

/* Creates the local tenant. Returns 0 or -ENOMEM. */
int tenants_init(struct service *s);
void tenants_destroy(struct service *s);
int tenants_restore(struct service *s, const struct store_tenant *row);
struct tenant *tenants_local(struct service *s);
/* Returns whether a tenant without operator rights has a key. New jobs then need a key (K97). */
bool tenants_have_keys(struct service *s);
/* Returns the tenant, even if it is revoked, or NULL if it was never added. */
struct tenant *tenants_find(struct service *s, const char *name);
/* Returns whether the service has no tenant except the local tenant. Nothing is then reserved for
 * other tenants. */
bool tenants_has_one(const struct service *s);
/* Writes the prefix of a job's name to `buffer` (TENANT_PREFIX_BYTES): "" or, for example, "acme/".
 * Returns `buffer`. */
const char *tenant_prefix(const struct tenant *tenant, char *buffer);
/* Finds a key, for channel_accept_keys(). `context` is the service. Returns 0, -ENOENT or
 * -EKEYREVOKED. */
int tenants_find_key(void *context, const char *name, struct key *ret_key);

/* Creates a tenant, which the caller stores. Returns NULL if memory is missing. */
struct tenant *tenant_create(struct service *s, const char *name);
void tenant_destroy(struct tenant *tenant);
/* Stores the tenant. Returns after its secret is on the disk. */
int tenant_keep(struct service *s, const struct tenant *tenant, struct err *err);
/* Returns the number of tenants, without the local tenant. */
size_t tenants_count(struct service *s);
void tenant_adopt_limits(struct tenant *tenant, const struct limits *limits);
/* Writes "tenant NAME", or a phrase for the local tenant, to `buffer`. Returns `buffer`. */
const char *tenant_title(const struct tenant *tenant, char *buffer, size_t buffer_bytes);

#endif
