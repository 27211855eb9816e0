/* The two tables of functions that an implementation of fabric.h provides. Only fabric.c and the
 * implementations include this header.
 *
 * An implementation has its own structs for a fabric and a connection. Their first members are
 * `struct fabric` and `struct fabric_conn`, which the implementation initializes. Its functions
 * cast the pointers back. fabric.c checks arguments that are the same for all implementations
 * (lengths of tickets and headers). The implementation checks all other arguments. All entries
 * except join_group and is_warm must be set. */
#ifndef GRADPOOL_FABRIC_FABRIC_OPS_H
#define GRADPOOL_FABRIC_FABRIC_OPS_H

#include "svc/fabric/fabric.h"
#include "svc/fabric/group.h"

struct fabric_ops {
    const char *kind; /* returned by fabric_kind() */
    bool maps;        /* returned by fabric_maps() */
    void (*close)(struct fabric *f);
    const char *(*describe)(const struct fabric *f);
    int (*listen)(struct fabric *f, const char *address, char *ret_address);
    int (*connect)(struct fabric *f, const char *address, const void *ticket, size_t ticket_bytes,
                   void *owner, struct fabric_conn **ret_conn);
    int (*messages_held_max)(const struct fabric *f);
    int (*pool_register)(struct fabric *f, void *base, size_t bytes);
    void (*pool_unregister)(struct fabric *f, void *base);
    int (*poll)(struct fabric *f, struct fabric_event *events, int events_max);
    void (*flush)(struct fabric *f);
    int (*arm)(struct fabric *f, struct fabric_wait *ret_wait);
    void (*abandon_in_child)(struct fabric *f);
    const struct fabric_conn_ops *conn; /* table of functions for the fabric's connections */
};

struct fabric_conn_ops {
    int (*accept)(struct fabric_conn *c, void *owner);
    /* NULL: connections do not take turns */
    void (*join_group)(struct fabric_conn *c, struct fabric_group *group);
    void (*refuse)(struct fabric_conn *c, int reason);
    void (*disconnect)(struct fabric_conn *c);
    void (*fence)(struct fabric_conn *c);
    void (*leave)(struct fabric_conn *c);
    const char *(*peer)(const struct fabric_conn *c);
    int (*peer_pid)(const struct fabric_conn *c);
    int (*send)(struct fabric_conn *c, const void *header, size_t header_bytes, const void *payload,
                size_t payload_bytes);
    void (*message_done)(struct fabric_conn *c, const void *data);
    int (*lend)(struct fabric_conn *c, const struct region *region, uint32_t id);
    void (*withdraw)(struct fabric_conn *c, uint32_t id);
    void *(*map)(struct fabric_conn *c, uint32_t id, uint64_t offset, size_t bytes);
    bool (*is_sound)(const struct fabric_conn *c);
    /* NULL: lent memory never has page faults */
    bool (*is_warm)(const struct fabric_conn *c);
    uint64_t (*region_bytes)(const struct fabric_conn *c, uint32_t id);
    int (*read)(struct fabric_conn *c, uint32_t id, uint64_t offset, void *local, size_t bytes,
                void *context);
    int (*write)(struct fabric_conn *c, uint32_t id, uint64_t offset, const void *local,
                 size_t bytes, void *context);
    int (*write_word)(struct fabric_conn *c, uint32_t id, uint64_t offset, const void *local,
                      size_t bytes, uint32_t word, void *context);
    int (*notify)(struct fabric_conn *c, uint32_t word, void *context);
};

struct fabric {
    const struct fabric_ops *ops;
};

struct fabric_conn {
    struct fabric *fabric;
    const struct fabric_conn_ops *ops; /* table of functions of the connection's fabric */
};

static inline void fabric_conn_init(struct fabric_conn *c, struct fabric *f)
{
    *c = (struct fabric_conn){.fabric = f, .ops = f->ops->conn};
}

#endif
