/* Selects an implementation by its name and forwards each call. Owns nothing. Arguments that are
 * wrong for every implementation are refused here. */
#include "svc/fabric/fabric.h"

#include "svc/fabric/fabric_ops.h"
#include "svc/fabric/group.h"
#include "svc/fabric/ofi/library/library.h"
#include "svc/fabric/ofi/ofi.h"
#include "svc/fabric/shm/shm.h"

#include <errno.h>
#include <string.h>

static const struct {
    const char *name;
    int (*open)(const struct fabric_options *options, struct fabric **ret_fabric);
    int (*load)(void); /* NULL: nothing to load */
} kinds[] = {
    {"shm", fabric_shm_open, NULL},
    {"ofi", fabric_ofi_open, ofi_library_load},
};

int fabric_open(const char *kind, const struct fabric_options *options, struct fabric **ret_fabric)
{
    static const struct fabric_options defaults;

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kinds[i].name, kind) == 0)
            return kinds[i].open(options ? options : &defaults, ret_fabric);
    return -EINVAL;
}

int fabric_load(const char *kind)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kinds[i].name, kind) == 0)
            return kinds[i].load ? kinds[i].load() : 0;
    return -EINVAL;
}

void fabric_watch_forks(void) { ofi_library_watch_forks(); }

void fabric_close(struct fabric *f)
{
    if (f)
        f->ops->close(f);
}

const char *fabric_kind(const struct fabric *f) { return f->ops->kind; }
const char *fabric_describe(const struct fabric *f) { return f->ops->describe(f); }

int fabric_listen(struct fabric *f, const char *address, char *ret_address)
{
    return f->ops->listen(f, address, ret_address);
}

int fabric_connect(struct fabric *f, const char *address, const void *ticket, size_t ticket_bytes,
                   void *owner, struct fabric_conn **ret_conn)
{
    if (ticket_bytes > FABRIC_TICKET_BYTES_MAX)
        return -EINVAL;
    return f->ops->connect(f, address, ticket, ticket_bytes, owner, ret_conn);
}

int fabric_accept(struct fabric_conn *c, void *owner) { return c->ops->accept(c, owner); }

void fabric_join_group(struct fabric_conn *c, struct fabric_group *group)
{
    if (c->ops->join_group)
        c->ops->join_group(c, group);
}

void fabric_refuse(struct fabric_conn *c, int reason) { c->ops->refuse(c, reason); }
void fabric_disconnect(struct fabric_conn *c) { c->ops->disconnect(c); }

void fabric_fence(struct fabric_conn *c) { c->ops->fence(c); }
void fabric_leave(struct fabric_conn *c) { c->ops->leave(c); }
const char *fabric_peer(const struct fabric_conn *c) { return c->ops->peer(c); }
int fabric_peer_pid(const struct fabric_conn *c) { return c->ops->peer_pid(c); }

int fabric_send(struct fabric_conn *c, const void *header, size_t header_bytes, const void *payload,
                size_t payload_bytes)
{
    if (header_bytes > FABRIC_MESSAGE_BYTES_MAX)
        return -EMSGSIZE;
    return c->ops->send(c, header, header_bytes, payload, payload_bytes);
}

void fabric_message_done(struct fabric_conn *c, const void *data) { c->ops->message_done(c, data); }

int fabric_messages_held_max(const struct fabric *f) { return f->ops->messages_held_max(f); }

int fabric_lend(struct fabric_conn *c, const struct region *region, uint32_t id)
{
    if (id >= FABRIC_REGIONS_MAX)
        return -EINVAL;
    return c->ops->lend(c, region, id);
}

void fabric_withdraw(struct fabric_conn *c, uint32_t id) { c->ops->withdraw(c, id); }

void *fabric_map(struct fabric_conn *c, uint32_t id, uint64_t offset, size_t bytes)
{
    return c->ops->map(c, id, offset, bytes);
}

bool fabric_maps(const struct fabric *f) { return f->ops->maps; }

bool fabric_is_sound(const struct fabric_conn *c) { return c->ops->is_sound(c); }

bool fabric_is_warm(const struct fabric_conn *c) { return !c->ops->is_warm || c->ops->is_warm(c); }

uint64_t fabric_region_bytes(const struct fabric_conn *c, uint32_t id)
{
    return c->ops->region_bytes(c, id);
}

int fabric_pool_register(struct fabric *f, void *base, size_t bytes)
{
    return f->ops->pool_register(f, base, bytes);
}

void fabric_pool_unregister(struct fabric *f, void *base) { f->ops->pool_unregister(f, base); }

int fabric_read(struct fabric_conn *c, uint32_t id, uint64_t offset, void *local, size_t bytes,
                void *context)
{
    return c->ops->read(c, id, offset, local, bytes, context);
}

int fabric_write(struct fabric_conn *c, uint32_t id, uint64_t offset, const void *local,
                 size_t bytes, void *context)
{
    return c->ops->write(c, id, offset, local, bytes, context);
}

int fabric_write_word(struct fabric_conn *c, uint32_t id, uint64_t offset, const void *local,
                      size_t bytes, uint32_t word, void *context)
{
    return c->ops->write_word(c, id, offset, local, bytes, word, context);
}

int fabric_notify(struct fabric_conn *c, uint32_t word, void *context)
{
    return c->ops->notify(c, word, context);
}

int fabric_poll(struct fabric *f, struct fabric_event *events, int events_max)
{
    return f->ops->poll(f, events, events_max);
}

void fabric_flush(struct fabric *f) { f->ops->flush(f); }
int fabric_arm(struct fabric *f, struct fabric_wait *ret_wait) { return f->ops->arm(f, ret_wait); }
void fabric_abandon_in_child(struct fabric *f) { f->ops->abandon_in_child(f); }
