/* Tables of a job on a lane: placing, members, settings, end. Thread: the lane's. */
#ifndef GRADPOOL_LANE_ROWS_TABLE_H
#define GRADPOOL_LANE_ROWS_TABLE_H

#include "svc/lane/rows/types.h"

/* A table of a job, and the shards of the table that a lane serves. */
struct lane_table_spec {
    uint32_t id; /* number of the table in the job */
    const char *name;
    const struct table_terms *terms;
    uint64_t salt; /* salt of mixed keys */
    /* memory for the rows of all tables of the job on this lane (room/room.h); 0: no limit */
    uint64_t rows_bytes_max;
};
struct lane_shard_spec {
    uint32_t number, epoch;
};
/* Places shards of a new table, ascending by number, after lane_place() of the job. All ranks of
 * the job become members of the table. Returns 0 or a negative errno; after an error the lane has
 * no shard of the table. -ENOENT: no such job; -EINVAL: invalid terms or shards; -EEXIST: the lane
 * has the table with other shards or terms; with the same shards and terms the call has no effect;
 * -EOPNOTSUPP: BSP in an elastic job; -EDQUOT, -ENOSPC, -ENOMEM: as lane_place(). */
int lane_place_table(struct lane *lane, uint32_t job, const struct lane_table_spec *table,
                     const struct lane_shard_spec *shards, size_t count);

/* Checks whether a job can have these shards. Returns 0 or an error of lane_place_table(). `job`
 * NULL: -ENOENT. */
int table_check_place(const struct lane_job *job, const struct lane_table_spec *table,
                      const struct lane_shard_spec *shards, size_t count);
/* Allocates the job's memory for tables, if this was not done before, and raises the allowance.
 * Returns 0 or an error of the arena. */
int tables_open(struct lane_job *job, uint64_t rows_bytes_max);
/* Creates a table that was checked, and adds the table to the list `to`. After an error nothing
 * stays allocated. */
int table_create(struct lane_tables *tables, const struct lane_table_spec *table,
                 const struct lane_shard_spec *shards, size_t count, struct list *to);
/* Removes the table from its list, and frees the table. */
void table_destroy(struct lane_table *table);
/* Returns whether the table has these terms, and all of these shards with their epochs. */
bool table_is_same(const struct lane_table *table, const struct lane_table_spec *spec,
                   const struct lane_shard_spec *shards, size_t count);
/* Prepares all tables for the workers that are connected over a network already. */
void tables_open_network(const struct lane_job *job);

struct lane_held_shard {
    uint32_t job, table, shard, epoch;
    uint64_t allowed_bytes; /* allowance of the job on the lane */
};
/* Calls `each` for every shard of every table of the jobs that were not dropped. */
void lane_each_shard(const struct lane *lane,
                     void (*each)(void *context, const struct lane_held_shard *held),
                     void *context);

/* Returns whether the pushes of a clock are applied together, after its end. Otherwise (SSP, ASP)
 * each push is applied on arrival. */
bool table_is_bsp(const struct lane_table *table);
/* Finds a table by its number; NULL: the lane has no such table. */
struct lane_table *table_find(const struct lane_job *job, uint32_t id);
/* Returns the shard; NULL: the shard does not exist, or is on another lane. */
struct lane_shard *table_shard_at(const struct lane_table *table, uint32_t number);
/* Returns the settings that apply to a clock; NULL: no rank has sent settings. Without BSP the
 * oldest stored settings also apply to all earlier clocks. The pointer is valid until
 * table_set(). */
const struct row_settings *table_settings(const struct lane_table *table, uint64_t clock);
/* Stores settings that apply from `clock` on; settings for the same clock replace the last
 * settings. Without BSP, the oldest settings are dropped if ROW_SETTINGS_MAX are stored, because a
 * rank may be any number of clocks ahead. -ENOBUFS: ROW_SETTINGS_MAX changes of BSP are not applied
 * yet. -ERANGE: the last settings are for a later clock. */
int table_set(struct lane_table *table, uint64_t clock, const struct row_settings *settings);
/* Returns whether the former owner of a promoted table has begun to apply this push (A131). */
static inline bool row_logged_is_of(const struct row_logged *logged, const struct row_request *push)
{
    const struct row_progress *before = &logged->progress;
    return before->sequence > 0 && push->record->sequence == before->sequence &&
           push->worker->number == before->rank;
}
/* Returns whether the clock (BSP) is applied to some rows of the lane, but not to all of them. */
bool table_has_begun_clock(const struct lane_table *table);
/* Moves a request from its list to the unused requests of its rank. */
void table_drop_request(struct lane_table *table, struct row_request *request);
/* Frees all tables of the job. */
void tables_free(struct lane_job *job);

#endif
