/* A lane: one core's aggregation. lane_poll() is its whole loop body: the thread of thread.h
 * calls it in production, tests call it by hand. All functions of this header belong to the lane's
 * thread. */
#ifndef GRADPOOL_LANE_LANE_H
#define GRADPOOL_LANE_LANE_H

#include "svc/fabric/fabric.h"
#include "svc/lane/memory/arena.h"
#include "svc/reduce/update.h"
#include "svc/wire/record.h"
#include "svc/wire/terms.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LANE_FABRICS_MAX 2
#define LANE_WORKERS_MAX 768

struct lane;

/* Order of the jobs for the next chunk of the lane's time (A20). */
enum lane_policy {
    LANE_FAIR,     /* jobs take turns: processor sharing */
    LANE_SHORTEST, /* the job with the fewest bytes left in its open rounds is first; with ageing */
    /* the job that was ready first has all turns until none of its pieces is ready; for comparisons
     */
    LANE_FIFO,
};

struct lane_options {
    uint32_t id; /* unique in the service; may be set later, before the first grant */
    /* random number of the aggregator process; a ticket with another one is refused */
    uint64_t incarnation;
    struct arena *arena;                      /* lent */
    struct fabric *fabrics[LANE_FABRICS_MAX]; /* lent, listening */
    size_t fabrics_count;
    enum reduce_set kernels; /* 0: the fastest that this machine supports */
    enum lane_policy policy;
    /* Longest time of a turn between two polls of the fabrics, and how far a job may be ahead of
     * waiting jobs (A77). 0: jobs take turns chunk by chunk, whatever a chunk takes. */
    uint64_t turn_ns;
    /* size of the core's last-level cache; 0: unknown, no sum streams (A18) */
    uint64_t cache_bytes;
    /* Called on the lane's thread after a job has failed or lost a rank; lane_each_failure() and
     * lane_each_lost() list them. NULL: no call. Must not call lane functions. */
    void (*job_failed)(void *context);
    /* Likewise, after a released piece has come to rest, or a replica holder has connected or has
     * the state (release.h). */
    void (*moving_news)(void *context);
    /* Likewise, after a job has begun to wait for memory (wanted.h). NULL: jobs allocate at once.
     */
    void (*memory_wanted)(void *context);
    void *context; /* argument of the three callbacks */
};

int lane_create(const struct lane_options *options, struct lane **ret_lane);
/* Frees all jobs. The caller has closed the fabrics before: no event may follow. */
void lane_destroy(struct lane *lane);

void lane_set_id(struct lane *lane, uint32_t id);

/* One turn: handles events, works on a few chunks in the order of the policy, sends messages.
 * Returns whether more work is due now; false: the caller sleeps until a fabric wakes it. */
bool lane_poll(struct lane *lane, uint64_t now_ns);
/* The next lane_poll() does not poll the fabric of this index, which did not wake the sleeping
 * lane. */
void lane_pass_over(struct lane *lane, size_t fabric);

/* Terms of a tensor's declaration, besides its shape. */
struct lane_terms {
    enum quorum quorum;
    uint32_t bound; /* ranks that make a round (QUORUM_FIRST), rounds ahead (QUORUM_STALE) */
    /* the job's pieces with QUORUM_CHOSEN wait for the sets of this QUORUM_FIRST piece */
    bool leads;
    bool measures;         /* sum the squares of inputs and results */
    enum update_rule rule; /* 0: the lane keeps no parameters */
};

/* Declaration of a piece: part of a tensor, to be served by this lane. */
struct lane_piece {
    uint32_t id, task;
    unsigned dtype;
    uint64_t elements;
    const char *tensor; /* the tensor's name, for messages to users; copied */
    struct lane_terms terms;
    /* set of ranks: a bitmap of RECORD_MISSING_WORDS, lent for the call; NULL: all ranks */
    const uint64_t *ranks;
    bool continues;  /* another piece has the tensor's first elements, and counts its rounds */
    uint32_t keeper; /* aggregator that is to store the copy of the state; 0: workers may (A49) */
};

/* Places pieces of a job; the first piece also creates the job. `recovering`: workers report their
 * standing before any sum (W5). Placing the same piece under the same epoch again has no effect.
 * -EINVAL: workers, dtype or shape contradict the known job or piece; -EBUSY: the piece is here
 * under another epoch; -EAGAIN: the piece was dropped and its open round is not over; -ENOMEM;
 * -ENOSPC, -EDQUOT: the limit of the lane, of the job. After an error no piece of the call was
 * added. */
int lane_place(struct lane *lane, uint32_t job, const char *name, uint32_t workers, uint32_t epoch,
               bool recovering, const struct lane_piece *pieces, size_t count);

/* Names aggregator `keeper` as replica holder of pieces that are here (0: workers may store the
 * copy). `when_known`: only after the copy at the former holder has been read, if the state may be
 * there. Unknown pieces are ignored. */
void lane_set_keeper(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count,
                     uint32_t keeper, bool when_known);

/* Memory that each piece, and each of its ranks, costs at least: for a coordinator that plans. */
size_t lane_piece_bytes(void);
size_t lane_rank_bytes(void);

/* Limits of the memory of all jobs together, and of each job; 0: no limit. Valid from the next
 * allocation on. */
void lane_set_memory_limit(struct lane *lane, uint64_t bytes);
void lane_set_job_memory_limit(struct lane *lane, uint64_t bytes);
/* Limits for one job: memory that its workers, and all workers of its tenant, lend to the lane, and
 * memory of the lane that the job holds; 0: no limit. Valid from the next lending or allocation on.
 */
struct lane_lent {
    uint64_t bytes_max;
    uint64_t tenant_bytes_max; /* lent by the tenant to all lanes of the process (shares.h) */
    uint64_t memory_bytes_max;
    uint32_t regions_max, tenant_regions_max;
    bool has_others;    /* other tenants exist */
    const char *tenant; /* name, copied; "": jobs without a key */
};
void lane_set_lent_limits(struct lane *lane, uint32_t job, const struct lane_lent *limits);
/* Bytes that the job holds now; 0: unknown job. */
uint64_t lane_job_memory(const struct lane *lane, uint32_t job);
/* Bytes that all jobs hold now, and their limit. */
void lane_memory(const struct lane *lane, uint64_t *ret_bytes, uint64_t *ret_limit_bytes);

/* Drops pieces, each when its open round is over; count 0: the job with its connections. Unknown
 * pieces and jobs are ignored. */
void lane_drop(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count);

/* Makes a ticket valid for one connection. -ENOENT: unknown job; -EINVAL: another lane or process,
 * or no such rank. */
int lane_grant(struct lane *lane, const struct record_connect *ticket);

/* Sums over the job's measured pieces on this lane, of one round. */
struct lane_squares {
    uint64_t round;
    uint32_t inputs, pieces;
    double input_squares, result_squares;
    uint64_t losses; /* inputs with a loss, counted once a piece */
    double loss_sum;
};
/* Sums over the rounds of a job that ended on this lane (A22). */
struct lane_endings {
    uint64_t rounds;
    uint64_t span_ns; /* from the first piece that could be worked on to the last that was done */
    /* lane time of the job in the last burst of a round: since no piece was at work */
    uint64_t burst_ns;
};
struct lane_job_use {
    uint32_t job, connections;
    uint64_t heap_bytes, registered_bytes, registered_regions, busy_ns, pushed_bytes, rounds;
    uint64_t queue_ns;     /* sum over all rounds: time from ready to their first chunk */
    uint64_t handled_ns;   /* time in which some round could be worked on or was in progress */
    uint64_t stalled_ns;   /* time that all its workers together waited for this lane */
    uint64_t begun_rounds; /* rounds of `reference` that have begun */
    uint64_t begun_ns;     /* when the newest of them began */
    /* when the newest round of any piece began; 0: while another was in progress */
    uint64_t round_begun_ns;
    uint64_t first_done_ns; /* when the first round on this lane was over; 0: none was */
    struct lane_endings endings;
    struct lane_squares squares; /* round 0: nothing is measured */
    uint32_t reference;          /* piece whose rounds count as the job's; 0: none yet */
    uint32_t states;             /* pieces that keep parameters */
    uint32_t copied;             /* of these, pieces with a whole copy */
    uint32_t empty;              /* of these, pieces without a copy that have no state to lose */
};
struct lane_piece_use {
    uint32_t piece;
    uint64_t busy_ns;
};
struct lane_use {
    uint64_t arena_bytes, busy_ns, rounds, pushed_bytes;
    uint64_t helped_ns; /* part of busy_ns that other threads than the lane's spent */
    size_t jobs_count;
};
/* Fills `ret_use` and up to `jobs_max` rows; ret_use->jobs_count is the number of all jobs. */
void lane_measure(struct lane *lane, struct lane_use *ret_use, struct lane_job_use *ret_jobs,
                  size_t jobs_max);

/* Fills up to `rows_max` rows, one a piece of the job; returns how many. Walks all pieces of the
 * job. */
size_t lane_measure_pieces(const struct lane *lane, uint32_t job, struct lane_piece_use *ret_rows,
                           size_t rows_max);

/* Calls `each` for every piece that the lane serves: for a coordinator that comes back. */
struct lane_held {
    uint32_t job, piece, epoch;
    bool is_frozen; /* released, at rest or not */
};
void lane_each_piece(const struct lane *lane,
                     void (*each)(void *context, const struct lane_held *held), void *context);

/* Calls `each` for every job that has failed and is not dropped yet. */
void lane_each_failure(const struct lane *lane,
                       void (*each)(void *context, uint32_t job, int code, const char *text),
                       void *context);

/* Fails every job that has not failed yet; connected workers get the error in the next turns. */
void lane_fail_jobs(struct lane *lane, int code, const char *text);

/* True when no round is in progress and no message is to be sent: a good moment to stop. */
bool lane_is_quiet(const struct lane *lane);
size_t lane_connections(const struct lane *lane);

#endif
