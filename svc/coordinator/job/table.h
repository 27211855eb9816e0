/* Tables of keyed rows of a job, and their shards: the ranks that declared a table, its entries in
 * the store, its routes in messages. A shard has one lane and one task. */
#ifndef GRADPOOL_COORDINATOR_JOB_TABLE_H
#define GRADPOOL_COORDINATOR_JOB_TABLE_H

#include "svc/coordinator/job/job.h"
#include "svc/wire/ranks.h"
#include "svc/wire/table/table_terms.h"

/* A shard of a table. In state PIECE_STRANDED the shard has no lane. After the loss of a lane, the
 * rows of its shards are lost, too, unless another lane has a whole copy (copies/copies.h). */
struct job_shard {
    uint32_t task, epoch;
    /* group of the shard's table on the lane: the lane may have the table twice (record_rows.h) */
    uint32_t group;
    struct lane *lane;
    uint32_t replica, copy; /* lane with a whole copy, and number of the copy; 0: no whole copy */
    uint32_t former; /* lost lane whose copy is being promoted; 0: none. The shard is not placed. */
    uint32_t stored; /* number of the lane in the store; this lane may be lost */
    enum piece_state state;
    /* Lane time since the start. A lane reports one time for all tables of the job, and each shard
     * on the lane gets an equal part. */
    uint64_t busy_ns;
};

struct job_table {
    struct list link; /* node in job_tables.list */
    struct job *job;
    /* number of the table from job.next_tensor, so that no tensor of the job has the same number */
    uint32_t id;
    uint64_t salt;
    struct table_terms *terms; /* terms of the table, with default values filled in */
    char *name;
    char *failure; /* reason that was sent to workers; NULL: the table has not failed */
    int failure_code;
    uint64_t ranks[RANKS_WORDS]; /* the ranks that have declared the table */
    struct job_shard *shards;    /* array of terms->shards shards */
};

/* Table memory that a lane may use for the rows of the job's tables (table/allow.h). */
struct row_allowance {
    uint32_t lane;
    uint32_t shards; /* number of the job's shards on the lane that `bytes` allows for */
    uint32_t copied; /* like `shards`, for copies of shards */
    uint64_t bytes;
    /* the lane's pushes wait, because this allowance was refused; 0: no push waits */
    uint64_t needed_bytes;
};
struct row_allowances {
    size_t count;
    struct row_allowance each[]; /* one for each lane that has or had shards */
};

#define job_each_table(table, job) \
    list_for_each_entry (struct job_table, table, &(job)->index->tables.list, link)
#define table_each_shard(shard, of)                                                          \
    for (struct job_shard *shard = (of)->shards; shard < (of)->shards + (of)->terms->shards; \
         shard++)

/* Creates a table with a random salt, and adds the table to the job. All shards are stranded.
 * Returns 0, -ENOMEM, or -EIO if no random number could be read. */
int job_table_add(struct job *job, const char *name, const struct table_terms *terms,
                  struct job_table **ret_table);
/* Detaches the shards from their lanes and frees the table. */
void job_table_remove(struct job_table *table);
/* Frees all tables of the job. */
void job_tables_free(struct job *job);
struct job_table *job_table_find(const struct job *job, uint32_t id);
struct job_table *job_table_named(const struct job *job, const char *name);
/* Returns the first table that has not failed and has a shard on the lane, or NULL. */
const struct job_table *job_table_on(const struct job *job, const struct lane *lane);
/* Like job_table_on(), for all lanes of the aggregator. */
const struct job_table *job_table_at(const struct job *job, const struct aggregator *a);

/* Finds the job's allowance on a lane. NULL: none. The pointer is valid until the next
 * job_allowance_add(). */
struct row_allowance *job_allowance(const struct job *job, uint32_t lane);
/* Finds the allowance, or adds one of 0 bytes. NULL: memory is missing. */
struct row_allowance *job_allowance_add(struct job *job, uint32_t lane);
/* Ends the allowance of a lost lane. */
void job_allowance_end(struct job *job, uint32_t lane);
/* Returns the sum of all allowances of the job. */
uint64_t job_allowances_bytes(const struct job *job);

/* Adds the table to the transaction that the caller has begun, and its shards if `with_shards`. */
void job_table_put(const struct job_table *table, bool with_shards);
/* Adds one shard to the transaction. job_shard_row() fills in its row. */
void job_shard_put(const struct job_table *table, uint32_t number);
void job_shard_row(const struct job_table *table, uint32_t number, struct store_row *ret_row);
/* Returns the number of the job's shards on the lane. */
uint32_t job_shards_on(const struct job *job, const struct lane *lane);
/* Returns a shard that the copy of the lost lane is replacing. If there are several, returns one
 * with the largest group; NULL: there is none. */
const struct job_shard *job_shard_from(const struct job *job, uint32_t lane);
int job_table_restore(struct service *s, const struct store_tensor *row);
int job_shard_restore(struct job_table *table, const struct store_piece *row);

/* Fails the table permanently. The reason is stored and sent to every rank that has declared the
 * table, except `except`. A second call has no effect. */
void job_table_fail(struct job_table *table, const struct session *except, int code,
                    const char *text);
/* Sends the failure of a failed table to a rank that has declared the table. The first message may
 * not have reached the rank. */
void job_table_send_failure(const struct job_table *table, const struct session *to);
/* Returns the routes of all shards. The message is one block, which the caller frees. Returns NULL
 * if memory is missing. */
WIRE(TableRoute) * job_table_route(const struct job_table *table);

#endif
