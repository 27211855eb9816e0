/* Owners of jobs. A tenant is known by its key; the local one ("") stands for whoever comes
 * without: over the Unix socket, or in plain TCP where that is allowed. */
#ifndef GRADPOOL_COORDINATOR_PEER_TENANT_H
#define GRADPOOL_COORDINATOR_PEER_TENANT_H

#include "svc/base/list.h"
#include "svc/channel/key.h"
#include "svc/coordinator/loop/turns.h"
#include "svc/coordinator/store/store.h"
#include "svc/wire/limit.h"

#define TENANT_PREFIX_BYTES (KEY_TENANT_BYTES_MAX + 2)

struct service;

/* Lives as long as the service, so that jobs and peers may point at it. */
struct tenant {
    struct list link; /* in door.tenants, the local one first */
    struct key key;
    bool is_operator; /* may add aggregators and see all jobs */
    bool is_revoked;
    struct limits limits;     /* the service's, and its own ones */
    struct party party;       /* its turns on this thread (turns.h) */
    uint64_t frame_bytes;     /* of its long messages that are being received (frames.c) */
    uint32_t connections;     /* over TCP */
    uint64_t regions;         /* lent to the lane that is being counted */
    uint64_t regions_most;    /* to the one with most of them, as counted last */
    uint64_t lent, lent_most; /* the same in bytes, of aggregators */
    uint64_t added_s;         /* since 1970; 0: the local one */
    uint32_t loss_limit_ppm;  /* of each of its jobs; 0: none is named */
};

/* Makes the local tenant. -ENOMEM. */
int tenants_init(struct service *s);
void tenants_destroy(struct service *s);
int tenants_restore(struct service *s, const struct store_tenant *row);
struct tenant *tenants_local(struct service *s);
/* Whether some tenant has a key that is no operator's: then new jobs come with one (K97). */
bool tenants_have_keys(struct service *s);
/* NULL: never added. Revoked ones are found. */
struct tenant *tenants_find(struct service *s, const char *name);
/* No tenant was added but one, or none: nobody's share is kept for others. */
bool tenants_has_one(const struct service *s);
/* "" or "acme/", which stands before a job's name; fills TENANT_PREFIX_BYTES. */
const char *tenant_prefix(const struct tenant *tenant, char *buffer);
/* For channel_accept_keys(); `context` is the service. -ENOENT, -EKEYREVOKED. */
int tenants_find_key(void *context, const char *name, struct key *ret_key);

/* In no store yet. NULL: no memory. */
struct tenant *tenant_create(struct service *s, const char *name);
void tenant_destroy(struct tenant *tenant);
/* Stores it, its secret safely on the disk. */
int tenant_keep(struct service *s, const struct tenant *tenant, struct err *err);
/* The local one does not count. */
size_t tenants_count(struct service *s);
void tenant_adopt_limits(struct tenant *tenant, const struct limits *limits);
/* "tenant acme"; fills `buffer` and returns it. */
const char *tenant_title(const struct tenant *tenant, char *buffer, size_t buffer_bytes);

#endif
