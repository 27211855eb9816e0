/* The owner's log of changed rows of all tables of a job on this lane. The lane writes the blocks
 * into a ring of the replica lane (svc/lane/table/log.h), whose process is connected like a replica
 * holder. The lane first copies all rows into the ring. If a copied row changes, the lane writes
 * the changed row to the same ring. After the copy is whole, the lane sends the word of a push only
 * when the blocks with its changes have landed (A128). Thread: the lane's. */
#ifndef GRADPOOL_LANE_ROWS_LOG_ROW_LOG_H
#define GRADPOOL_LANE_ROWS_LOG_ROW_LOG_H

#include "svc/lane/rows/types.h"
#include "svc/lane/table/log.h"

enum row_log_state {
    ROW_LOG_OFF,     /* no replica lane is named */
    ROW_LOG_AWAITED, /* the replica lane has not offered its ring yet */
    ROW_LOG_COPYING, /* rows are being copied */
    ROW_LOG_ENDING,  /* all rows are in the log, and the replica lane has not applied all of them */
    ROW_LOG_WHOLE,   /* the replica lane has a whole copy */
    ROW_LOG_BROKEN, /* the log has ended early, and the coordinator has not begun another log yet */
};

struct row_log {
    enum row_log_state state;
    /* words of pushes wait for the log, because the coordinator may have stored that the copy is
     * whole */
    bool holds_words;
    bool is_due;           /* the coordinator has to receive the state */
    uint32_t tables_count; /* number of tables in the log */
    uint32_t holder, copy; /* aggregator of the replica lane; number of the copy */
    struct worker *worker; /* connection of the aggregator `holder`; NULL: none */
    uint32_t region;       /* place of the ring in the memory that `holder` lends */
    uint64_t offset;
    struct log_writer writer;
    /* positions up to which blocks are posted, have landed, and were reported to the replica
     * lane */
    uint64_t posted, landed, told;
    char *staging;          /* blocks that are written over a network; NULL: the ring is mapped */
    struct row_fetch write; /* write of blocks over a network */
    /* The next row to be copied; `table` NULL: all rows were copied. */
    struct lane_table *table;
    uint32_t shard;
    uint64_t next;
    uint64_t whole_at;   /* position after the block that completes the copy */
    uint32_t open_bytes; /* payload of the open block of changed rows; 0: no block is open */
};

struct lane_log_spec {
    uint32_t holder; /* aggregator that lends the ring */
    uint32_t copy;
    /* Numbers of the job's failed tables, without a group. The log does not contain them, because
     * the replica lane has no place for a failed table. */
    const uint32_t *failed;
    size_t failed_count;
};
/* Begins copy number `spec->copy`. The coordinator has stored already that no copy is whole, so all
 * words that waited for an earlier copy are sent. With the number of the present copy the call has
 * no effect. Returns 0. -ENOENT: the lane has no table of the job; -ENOMEM and other errors of the
 * arena. */
int lane_begin_log(struct lane *lane, uint32_t job, const struct lane_log_spec *spec);
/* Ends the log, after the coordinator has stored that no copy is whole. */
void lane_end_log(struct lane *lane, uint32_t job);

struct lane_log_report {
    uint32_t job, copy;
    bool is_whole; /* false: the log has ended early */
};
/* Calls `each` for every whole or broken log that was not reported yet. `again`: also for logs that
 * were reported before. */
void lane_each_log_report(struct lane *lane, bool again,
                          void (*each)(void *context, const struct lane_log_report *report),
                          void *context);

/* Begins to copy rows into the offered ring. An offer for another copy is ignored. Returns NULL, or
 * a text about the fault, after which the caller disconnects the holder. */
const char *row_log_hear_ring(struct worker *holder, const struct record_ring *ring);
/* Frees the room of blocks that the replica lane has applied. Returns as row_log_hear_ring(). */
const char *row_log_hear_taken(struct worker *holder, const struct record_taken *taken);
/* Ends the log if this holder has lent the ring. */
void row_log_forget(const struct worker *holder);
/* Records the end of a write. An error of the write ends the log. Returns false if no log has
 * posted the write. */
bool row_log_progress(struct lane_job *job, const void *context, int error);

/* Ends the log, because the replica lane cannot have a whole copy any more. Words of pushes wait
 * until the coordinator has stored that no copy is whole. Has no effect without a log. */
void row_log_break(struct lane_tables *tables);
/* Frees the log. */
void row_log_free(struct lane_tables *tables);

/* Copies rows, writes changed states, posts writes, and reports landed blocks. Returns whether
 * there was work. */
bool row_log_work(struct lane_tables *tables);
/* Returns whether rows may change now. A log must have room for a block and, after the copy, must
 * contain the newest state of each table. */
bool row_log_may_update(const struct lane_tables *tables);
/* Writes the rows of the applied keys from position `first` of the stripe on, at most
 * LOG_PAYLOAD_BYTES_MAX. The block stays open until row_log_close(), which adds the progress of
 * the table after this change. `shard`: shard of the rows. */
void row_log_rows(const struct row_apply *apply, uint32_t first);
void row_log_close(const struct lane_table *table, uint32_t shard);
/* Returns the position after the last block; 0: there is no log. */
uint64_t row_log_end(const struct lane_tables *tables);
/* Returns whether the answer to an ended request may be sent. */
bool row_log_may_answer(const struct lane_tables *tables, const struct row_request *request);
/* Marks the states of all tables as changed. */
void row_log_states_changed(struct lane_tables *tables);

#endif
