/* Copies of tables of other lanes. A lane that stores a copy (the replica lane) reads the owner's
 * log from a ring in the memory of its own process, and applies the blocks in its own turns. No
 * worker can use a copy. After the loss of the owner, the coordinator promotes the copy: its tables
 * become tables of this lane (A130, A131). Thread: the lane's. */
#ifndef GRADPOOL_LANE_ROWS_COPY_COPY_H
#define GRADPOOL_LANE_ROWS_COPY_COPY_H

#include "svc/lane/rows/stage/stage.h"
#include "svc/lane/rows/table.h"
#include "svc/lane/table/log.h"

/* Returns the number of a table after a promotion (svc/wire/table/record_rows.h). The first
 * promotion adds a group to the number, because the lane may have other shards of the same table.
 * Later promotions keep the group. */
static inline uint32_t copy_table_id(uint32_t id, uint32_t group)
{
    return row_group_of(id) ? id : row_table_id(id, group);
}

/* All tables of a job on one other lane. */
struct row_copy {
    struct list link; /* node in lane_tables.copies */
    struct lane_tables *tables;
    struct list copied; /* the tables, which are in no other list */
    uint32_t owner, copy;
    const char *ring;
    struct log_reader reader;
    /* blocks before `logged` have landed; blocks before `told` were reported as applied */
    uint64_t logged, told;
    bool is_whole;   /* all rows and states were applied at least once */
    bool is_damaged; /* a block does not fit the tables; the copy cannot be used */
    bool is_due;     /* the control thread has to report `told` or `is_damaged` */
};

struct lane_copy_spec {
    uint32_t owner;   /* lane whose log is read */
    uint32_t copy;    /* number of the copy, as in lane_begin_log() */
    const char *ring; /* LOG_RING_BYTES, valid until lane_drop_copy() returns; zeroed */
};
/* Places the copy of one table of the owner, like lane_place_table(). Another number than that of
 * the present copy replaces this copy. With the same number, owner and shards the call has no
 * effect. Returns 0 or an error of lane_place_table(). */
int lane_place_copy(struct lane *lane, uint32_t job, const struct lane_copy_spec *copy,
                    const struct lane_table_spec *table, const struct lane_shard_spec *shards,
                    size_t count);
/* Drops the copy of the tables of `owner`; afterwards the lane no longer reads the ring.
 * Unknown copies are ignored. */
void lane_drop_copy(struct lane *lane, uint32_t job, uint32_t owner);
/* Drops all copies of the job. */
void lane_drop_copies(struct lane *lane, uint32_t job);
/* The owner has reported that blocks before `position` have landed. Unknown copies are ignored. */
void lane_copy_logged(struct lane *lane, uint32_t job, uint32_t owner, uint32_t copy,
                      uint64_t position);

struct lane_copy_report {
    uint32_t job, owner, copy;
    uint64_t position; /* all blocks before are applied; sent to the owner as TAKEN */
    bool is_damaged;   /* the copy cannot be used any more */
};
/* Calls `each` for every copy that has applied blocks or was damaged since the last call. `again`:
 * also for every other damaged copy. */
void lane_each_copy_report(struct lane *lane, bool again,
                           void (*each)(void *context, const struct lane_copy_report *report),
                           void *context);

struct lane_promotion {
    uint32_t owner, copy;
    uint32_t group; /* group for tables without a group: 1 to ROW_GROUP_MAX, unique in the job */
    uint32_t epoch; /* epoch of all shards from now on, unique in the job */
    /* stage that the job has begun; `number` 0: none. Tables whose log does not contain the begin
     * of this stage begin the stage here. */
    struct lane_stage stage;
};
/* Applies all blocks that have landed, and makes the copy's tables tables of this lane. The caller
 * has made sure that the owner can no longer write to the ring. Every rank has to repeat its
 * requests and its clock. Returns 0, also if the copy was promoted before. -EAGAIN: the allowance
 * is used up, and a request for more was made. -ENOENT: no such copy; -EBADMSG: the copy is not
 * whole, or is damaged; -EINVAL: an invalid group or stage. After -EINVAL nothing has changed. */
int lane_promote_copy(struct lane *lane, uint32_t job, const struct lane_promotion *promotion);

/* Applies at most one block of each copy. Returns whether there was work. */
bool copies_work(struct lane_tables *tables);
/* Frees all copies. */
void copies_free(struct lane_tables *tables);

/* copy.c, for promote.c: applies the next block. Returns 1, or 0 if no further block has landed, or
 * an error: -EAGAIN if the allowance is used up; -EBADMSG: the copy is damaged. */
int copy_apply(struct row_copy *copy);
struct row_copy *copy_find(const struct lane_job *job, uint32_t owner);
/* Frees a copy and its tables. */
void copy_free(struct row_copy *copy);

#endif
