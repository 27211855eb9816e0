/* Pulls and pushes of tables, from the first record to the words of all lanes. A call has one
 * exchange for each block of its batch, and lends memory to the lanes until the last word. */
#ifndef GRADPOOL_CLIENT_LIB_JOB_ROW_CALL_H
#define GRADPOOL_CLIENT_LIB_JOB_ROW_CALL_H

#include "client/gradpool_table.h"
#include "client/lib/job/job_tables.h"
#include "client/lib/job/row_pool.h"
#include "client/lib/table/batch.h"

struct row_call;

struct row_block {
    struct table_exchange exchange;
    struct row_call *call;
};

/* The late ranks for which a call waits, as a lane has named them in its answer to a query. */
struct row_late {
    uint32_t word;   /* word of the query; 0: no query was sent */
    uint32_t behind; /* number of late ranks; 0: no lane has named a late rank */
    uint32_t count;  /* number of ranks in `ranks` */
    uint32_t ranks[RECORD_CLOCKS_RANKS_MAX];
    uint64_t clocks[RECORD_CLOCKS_RANKS_MAX];
};

struct row_call {
    struct list node; /* node in gp_batch.idle or job_tables.calls */
    struct gp_batch *batch;
    struct gp_request *request; /* NULL: no caller waits */
    struct row_memory *memory;  /* NULL: the call is idle */
    struct table_request *requests;
    struct request_part *parts;
    struct table_span *spans; /* scratch memory in which the request is laid out */
    struct row_block *blocks;
    uint32_t open; /* number of blocks that have begun and are not over */
    bool is_push;
    bool is_copied; /* the call is a push without a request: gp_clock() returns its error */
    uint64_t clock; /* clock of the call */
    /* memory of the caller for the rows of a pull; NULL: the rows were copied, or are not wanted */
    void *rows;
    struct row_late late;
};

struct gp_batch {
    struct gp_table *table;
    struct list node; /* node in gp_table.batches */
    struct table_batch keys;
    struct list idle;    /* row_call.node */
    uint32_t calls_used; /* number of calls that are not idle */
    bool is_freed;       /* the caller has freed the batch; the batch ends with its last call */
};

/* Adds an empty batch to the table. -ENOMEM. */
int batch_create(struct gp_table *t, struct gp_batch **ret_batch);
/* Frees a batch now, or with its last call. */
void batch_free(struct gp_batch *b);

/* Takes an idle call of the batch into use. NULL: all calls are in use. */
struct row_call *row_call_take(struct gp_batch *b);
/* Allocates a call, and takes the call into use. -ENOMEM, -ENOSPC: exchange_prepare(). */
int row_call_create(struct gp_batch *b, struct row_call **ret_call);

/* Begins the exchanges of a call that is laid out. -EBUSY: a lane has no room for the blocks, and
 * no exchange has begun; -EOVERFLOW: no number for a request is left. */
int row_call_begin(struct row_call *call, enum record_rows_operation operation);
/* Ends the use of a call without an open block: its memory returns to the pool, and the call is
 * idle. */
void row_call_end(struct row_call *call);
/* Separates a call from its request, because the caller no longer waits. */
void row_call_abandon(struct row_call *call);
/* Handles a word, or an error, of a lane. */
void row_calls_word(struct gp_job *job, uint32_t lane, uint32_t word);
void row_calls_error(struct gp_job *job, uint32_t lane, const struct record_error *error);
/* Ends the exchanges of all calls of a table (NULL: of all tables) with a lost lane. */
void row_calls_lose(struct gp_job *job, const struct gp_table *t, uint32_t lane, int code,
                    const char *text);
/* Returns whether every push of an ended clock is complete. */
bool row_calls_are_settled(const struct gp_job *job);
/* Stores a lane's answer to the query of a late call. Returns the request of the call; NULL: no
 * call has sent the query. */
struct gp_request *row_calls_late(struct gp_job *job, const struct record_clocks *clocks);

#endif
