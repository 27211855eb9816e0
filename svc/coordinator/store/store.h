/* What the coordinator remembers across a restart, behind a small seam: SQLite is the first store,
 * a key-value server can be another.
 *
 * A change is: store_begin, any puts and erases, store_commit. Puts do not fail by themselves; the
 * first error is kept and comes out of the commit, which then leaves the store as it was before. */
#ifndef GRADPOOL_COORDINATOR_STORE_STORE_H
#define GRADPOOL_COORDINATOR_STORE_STORE_H

#include "svc/base/err.h"
#include "svc/base/library.h"

#include <stdint.h>

#define STORE_RANKS_BYTES 96 /* a bit a rank: 768 */
#define STORE_TERMS_BYTES 112

/* In the order in which load() gives them: what refers comes after what it refers to. */
enum store_table {
    STORE_SERVICE,
    STORE_TENANT,
    STORE_AGGREGATOR,
    STORE_LANE,
    STORE_JOB,
    STORE_SESSION,
    STORE_TENSOR,
    STORE_PIECE,
    STORE_PROFILE,
    STORE_TABLES,
};

/* One row. The next numbers to give out, so that none is ever given twice. */
struct store_service {
    uint32_t key; /* 1 */
    uint64_t incarnation;
    uint32_t next_aggregator, next_lane, next_job, next_task;
};
struct store_tenant {
    const char *name;
    const char *secret; /* hex */
    uint32_t is_operator, is_revoked;
    uint64_t added_s;
    uint32_t loss_limit_ppm; /* 0: none */
    const char *limits;      /* its own ones, as limits_write_own() has them */
};
struct store_aggregator {
    uint32_t aggregator;
    uint64_t incarnation;
    uint64_t identity; /* process_identity() of pid; 0: not on this host */
    uint32_t pid, slot;
    const char *node;
};
struct store_lane {
    uint32_t lane;
    uint32_t aggregator, index, core, pu;
    int32_t numa;
    uint64_t memory_bytes;
    const char *shm, *ofi;
};
struct store_job {
    uint32_t job;
    const char *tenant; /* "": the local one */
    const char *name;
    uint32_t workers, epoch, next_tensor, next_piece;
    const char *failure;     /* "": none */
    uint32_t loss_limit_ppm; /* 0: none */
    uint32_t layout;         /* profiles_layout(); 0: nothing was declared yet */
    uint32_t founding, wanted, version, continues, is_elastic; /* K40 */
};
struct store_session {
    uint32_t job, rank;
    uint64_t session, identity;
    uint32_t pid, state;
    const char *node;
    uint32_t entered;
};
struct store_tensor {
    uint32_t job, tensor;
    const char *name;
    uint32_t dtype;
    uint64_t elements;
    const char *failure;    /* "": none */
    const uint8_t *ranks;   /* STORE_RANKS_BYTES: who has declared it */
    const void *terms;      /* STORE_TERMS_BYTES: struct terms */
    const uint8_t *members; /* STORE_RANKS_BYTES: whose pushes make its rounds */
    uint32_t grouped;
};
struct store_piece {
    uint32_t job, piece;
    uint32_t tensor, task, lane, epoch;
    uint64_t first, elements;
    uint32_t lost_epoch;    /* the last one whose lane before had not let go of it */
    uint32_t keeper;        /* the aggregator that has a copy of its state; 0: none */
    uint32_t former_keeper; /* one whose copy its lane may want; 0: none */
};

struct store_blob {
    const void *data;
    uint32_t bytes;
};
/* How a job ran that may come again. */
struct store_profile {
    const char *tenant, *job;
    uint32_t workers, layout;
    uint64_t turn; /* greater is newer */
    uint64_t period_ns, busiest_ns, lanes_ns, span_ns, burst_ns, slack_ns;
    struct store_blob tensors;
    uint32_t is_alone;               /* no other job had its lanes meanwhile: 1, else 0 */
    uint32_t few, enough, spent_ppm; /* of its lanes, as the packer has it */
};

struct store_row {
    enum store_table table;
    union {
        struct store_service service;
        struct store_tenant tenant;
        struct store_aggregator aggregator;
        struct store_lane lane;
        struct store_job job;
        struct store_session session;
        struct store_tensor tensor;
        struct store_piece piece;
        struct store_profile profile;
    };
};

struct store;
struct store_ops {
    void (*begin)(struct store *store);
    /* Inserts, or replaces the row with the same key. */
    void (*put)(struct store *store, const struct store_row *row);
    /* Only the key fields of `row` are read. Rows that belong to it go with it: a job's sessions,
     * tensors and pieces, a tensor's pieces, an aggregator's lanes. */
    void (*erase)(struct store *store, const struct store_row *row);
    int (*commit)(struct store *store, struct err *err);
    void (*sync)(struct store *store);
    /* Strings of a row are valid during the callback, which ends the load with an error. */
    int (*load)(struct store *store, int (*each)(void *context, const struct store_row *row),
                void *context, struct err *err);
    void (*close)(struct store *store);
};
struct store {
    const struct store_ops *ops;
};

static inline void store_begin(struct store *store) { store->ops->begin(store); }
static inline void store_put(struct store *store, const struct store_row *row)
{
    store->ops->put(store, row);
}
static inline void store_erase(struct store *store, const struct store_row *row)
{
    store->ops->erase(store, row);
}
/* -ENOSPC, -EROFS, -EIO, ...: nothing of it happened; the text names the file. */
static inline int store_commit(struct store *store, struct err *err)
{
    return store->ops->commit(store, err);
}
/* One row, put or erased by itself. */
static inline int store_put_one(struct store *store, const struct store_row *row, struct err *err)
{
    store_begin(store);
    store_put(store, row);
    return store_commit(store, err);
}
static inline int store_erase_one(struct store *store, const struct store_row *row, struct err *err)
{
    store_begin(store);
    store_erase(store, row);
    return store_commit(store, err);
}
/* Commits so far are on the disk, and in the file rather than in its log. A failure is logged:
 * it takes nothing back. */
static inline void store_sync(struct store *store) { store->ops->sync(store); }
static inline int store_load(struct store *store,
                             int (*each)(void *context, const struct store_row *row), void *context,
                             struct err *err)
{
    return store->ops->load(store, each, context, err);
}
static inline void store_close(struct store *store)
{
    if (store)
        store->ops->close(store);
}

/* -EBADMSG: it was used before, and is gone, damaged or lacks changes; the text says what to do.
 * `pages_max`: refuse to grow over so many pages of 4 KiB (0: no limit). */
int store_sqlite_open(const char *path, uint32_t pages_max, struct store **ret_store,
                      struct err *err);

/* SQLite's versions. */
void store_sqlite_library(struct library *ret_row);

#endif
