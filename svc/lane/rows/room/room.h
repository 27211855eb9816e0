/* Memory for the rows of a job's tables on one lane. The coordinator grants the memory in steps, as
 * an allowance. A push whose new rows do not fit waits until the coordinator has raised the
 * allowance. RULES.md: A82, A134. Thread: the lane's. */
#ifndef GRADPOOL_LANE_ROWS_ROOM_ROOM_H
#define GRADPOOL_LANE_ROWS_ROOM_ROOM_H

#include "svc/lane/memory/arena.h"
#include "svc/lane/rows/types.h"

struct row_room {
    struct allowance rows; /* rows and indexes of all tables of the job */
    /* bytes of `rows`; the account of the job does not contain them, because its limit is for
     * tensors */
    struct arena_account account;
    struct arena *arena;
    uint64_t needed_bytes; /* allowance that the refused rows need; 0: no push waits */
    uint64_t asked_bytes;  /* allowance at the last request for the next step; 0: no request */
    bool is_due;           /* the coordinator has to receive a request */
};

/* Allocates the state of a job. The allowance is 0 bytes until room_allow(). Returns 0 or an error
 * of allowance_alloc(). */
int room_make(struct lane_tables *tables);
/* Frees the state, after all rows were freed. Has no effect in a job without this state. */
void room_free(struct lane_tables *tables);
/* Raises the allowance to `bytes`; 0: no limit. A value below the present allowance has no effect,
 * because the coordinator sent this value earlier. */
void room_allow(struct lane_tables *tables, uint64_t bytes);
/* Requests the next step if three quarters of the allowance are used. */
void room_check(struct lane_tables *tables);
/* Called after rows were refused with `error`. If the allowance is the cause, requests memory,
 * begins a wait, and returns true. Otherwise returns false, and no wait begins. */
bool room_lacks(struct lane_tables *tables, int error);
/* Returns whether pushes wait for memory. */
bool room_is_short(const struct lane_tables *tables);
/* Ends the wait, because the push or import that waited has ended. The coordinator receives a
 * request that needs no memory. */
void room_forget(struct lane_tables *tables);

/* Raises the allowance of a job, as room_allow(). Unknown jobs are ignored. */
void lane_allow_rows(struct lane *lane, uint32_t job, uint64_t bytes);

/* A job's request for memory. */
struct lane_rows_wanted {
    uint32_t job;
    uint64_t allowed_bytes; /* the present allowance */
    uint64_t needed_bytes;  /* the allowance that a waiting push needs; 0: no push waits */
};
/* Calls `each` for the requests that were not passed on yet. `again`: also for earlier requests of
 * pushes that still wait, because the coordinator may have forgotten these requests. */
void lane_each_rows_wanted(struct lane *lane, bool again,
                           void (*each)(void *context, const struct lane_rows_wanted *wanted),
                           void *context);

#endif
