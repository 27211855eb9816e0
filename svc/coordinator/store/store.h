/* The state that survives a restart. The interface does not depend on SQLite, so a key-value server
 * could also store the state.
 *
 * A change consists of store_begin(), puts and erases, and store_commit(). Puts and erases return
 * no errors. The commit returns the first error; the store is then unchanged. */
#ifndef GRADPOOL_COORDINATOR_STORE_STORE_H
#define GRADPOOL_COORDINATOR_STORE_STORE_H

#include "svc/base/err.h"
#include "svc/base/library.h"

#include <stdint.h>

#define STORE_RANKS_BYTES 96 /* one bit for each of 768 ranks */
#define STORE_TERMS_BYTES 112
#define STORE_BACKUP_BYTES 32

/* Tables of the store, in the order in which load() reads them. A row refers only to rows of
 * earlier tables. */
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
    STORE_POOL_JOB,
    STORE_POOL_WORKER,
    STORE_TABLES,
};

/* Next numbers to assign, in the only row of this table, so that no number is assigned twice. */
struct store_service {
    uint32_t key; /* always 1, the key of the only row */
    uint64_t incarnation;
    uint32_t next_aggregator, next_lane, next_job, next_task;
};
struct store_tenant {
    const char *name;
    const char *secret; /* secret of the key, in hexadecimal digits */
    uint32_t is_operator, is_revoked;
    uint64_t added_s;
    uint32_t loss_limit_ppm; /* loss limit in millionths; 0: no limit */
    const char *limits;      /* the tenant's own limits, as written by limits_write_own() */
};
struct store_aggregator {
    uint32_t aggregator;
    uint64_t incarnation;
    uint64_t identity; /* process_identity() of pid; 0: the process is on another host */
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
/* Values of store_job.flags: fields of struct job_terms that are stored as bits. */
enum store_job_flag { STORE_JOB_CONTINUES = 1, STORE_JOB_ELASTIC = 2 };
struct store_job {
    uint32_t job;
    const char *tenant; /* "": the local tenant */
    const char *name;
    uint32_t workers, epoch, next_tensor, next_piece;
    const char *failure;                /* "": the job has not failed */
    uint32_t loss_limit_ppm;            /* loss limit in millionths; 0: no limit */
    uint32_t layout;                    /* profiles_layout(); 0: no declare yet */
    uint32_t founding, wanted, version; /* fields of struct job_ranks (K40) */
    uint32_t flags, rest;
    const void *backup;        /* STORE_BACKUP_BYTES bytes: a struct backup_terms */
    uint64_t ordered_until_ns; /* end of a hold, CLOCK_MONOTONIC; 0: none */
};
struct store_session {
    uint32_t job, rank;
    uint64_t session, identity;
    uint32_t pid, state;
    const char *node;
    uint32_t entered, was_removed;
};
/* A tensor, or a table of keyed rows. A table has the dtype STORE_TABLE_DTYPE, and its number of
 * shards in place of elements. A shard is stored as a piece, with its number in `piece`, its group
 * in `first`, and an enum store_shard in `elements`. For a placed shard, `keeper` is the lane with
 * a whole copy, and `former_keeper` the number of this copy. For a promoted shard, `keeper` is the
 * lost lane, and `former_keeper` the number of the promoted copy. */
#define STORE_TABLE_DTYPE 0u
enum store_shard {
    STORE_SHARD_PLACED = 1,
    STORE_SHARD_PROMOTED = 2, /* the copy on `lane` is, or will be, promoted */
};
/* dtype of a row with the present stage of a job (stage/store.c) */
#define STORE_STAGE_DTYPE UINT32_MAX
struct store_tensor {
    uint32_t job, tensor;
    const char *name;
    uint32_t dtype;
    uint64_t elements;
    const char *failure;    /* "": the tensor has not failed */
    const uint8_t *ranks;   /* STORE_RANKS_BYTES: the ranks that have declared the tensor */
    const void *terms;      /* STORE_TERMS_BYTES: a struct terms, or a struct table_stored */
    const uint8_t *members; /* STORE_RANKS_BYTES: the ranks whose pushes complete a round */
    uint32_t grouped;
    uint64_t committed;
};
struct store_piece {
    uint32_t job, piece;
    uint32_t tensor, task, lane, epoch;
    uint64_t first, elements;
    /* Epoch of the last placement for which the former lane did not release the piece (K20). */
    uint32_t lost_epoch;
    uint32_t keeper;        /* the replica holder, an aggregator; 0: none */
    uint32_t former_keeper; /* former replica holder; its copy may still be needed; 0: none */
};

struct store_blob {
    const void *data;
    uint32_t bytes;
};
/* Measurements of a job, for its next run. */
struct store_profile {
    const char *tenant, *job;
    uint32_t workers, layout;
    uint64_t turn; /* larger values are newer */
    uint64_t period_ns, busiest_ns, lanes_ns, span_ns, burst_ns, slack_ns;
    struct store_blob tensors;
    uint32_t is_alone; /* 1: the job was measured without other jobs on its lanes; otherwise 0 */
    uint32_t few, enough, spent_ppm; /* fields of struct narrow of the packer */
};

/* Values of store_pool_job.flags and store_pool_worker.flags. */
enum store_pool_job_flag {
    STORE_POOL_JOB_COMPLETE = 1,
    STORE_POOL_JOB_ENDING = 2,
    STORE_POOL_JOB_MAY_REST = 4,
    STORE_POOL_JOB_RESTS = 8,
    STORE_POOL_JOB_BY_ORDER = 16, /* the rest is by order of the user */
};
enum store_pool_worker_flag {
    STORE_POOL_WORKER_STARTED = 1,
    STORE_POOL_WORKER_LEAVING = 2,
    STORE_POOL_WORKER_LEFT = 4,
    STORE_POOL_WORKER_LOST = 8,
    STORE_POOL_WORKER_RESTING = 16,
    STORE_POOL_WORKER_JOINED = 32,
};
/* A job of a pool, and an order to start one of its workers. */
struct store_pool_job {
    const char *tenant, *job; /* tenant "": the local tenant */
    const char *site, *study, *node;
    uint32_t pid;
    uint64_t pool;
    uint32_t workers_min, workers_max, first;
    uint64_t steps;
    uint32_t flags;
    int32_t end_code;
    const char *end_text;
};
struct store_pool_worker {
    const char *tenant, *job;
    uint32_t rank;
    uint64_t incarnation;
    uint32_t slot, flags;
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
        struct store_pool_job pool_job;
        struct store_pool_worker pool_worker;
    };
};

struct store;
struct store_ops {
    void (*begin)(struct store *store);
    /* Inserts the row, or replaces the row with the same key. */
    void (*put)(struct store *store, const struct store_row *row);
    /* Erases the row with the key fields of `row`. Rows that depend on it are erased, too:
     * sessions, tensors and pieces of a job, workers of a pool's job, pieces of a tensor, lanes of
     * an aggregator. */
    void (*erase)(struct store *store, const struct store_row *row);
    int (*commit)(struct store *store, struct err *err);
    void (*sync)(struct store *store);
    /* Calls `each` for every row. Strings of a row are valid during the call. A negative result of
     * `each` ends the load and is returned. */
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
/* Returns 0 or a negative errno such as -ENOSPC, -EROFS or -EIO. After an error nothing has
 * changed; `err` names the file. */
static inline int store_commit(struct store *store, struct err *err)
{
    return store->ops->commit(store, err);
}
/* Puts one row in a transaction of its own. */
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
/* Waits until all commits are in the database file on the disk, not only in its log. An error is
 * only logged, because the commits remain valid. */
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

/* Opens or creates the database. `pages_max`: maximum number of pages of 4 KiB (0: no limit).
 * Returns 0 or a negative errno; `err` says what to do. -EBADMSG: a database that was in use is
 * missing, damaged, or lacks changes. */
int store_sqlite_open(const char *path, uint32_t pages_max, struct store **ret_store,
                      struct err *err);

/* Returns the SQLite versions of the build and of the running program. */
void store_sqlite_library(struct library *ret_row);

#endif
