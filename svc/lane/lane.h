/* A lane aggregates on one core. lane_poll() is one turn of its loop: in production the thread of
 * thread.h calls it, in tests the test itself. All functions of this header are for the lane's
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
    LANE_FAIR, /* jobs take turns (processor sharing) */
    /* the job with the fewest bytes left in its open rounds is first; a job that waits long goes
     * first */
    LANE_SHORTEST,
    /* the job that was ready first has all turns until none of its pieces is ready; for comparisons
     * only */
    LANE_FIFO,
};

struct lane_options {
    /* number of the lane, unique in the service; may be set later, before the first grant */
    uint32_t id;
    /* random number of the aggregator process; a ticket with another number is refused */
    uint64_t incarnation;
    struct arena *arena;                      /* lent to the lane */
    struct fabric *fabrics[LANE_FABRICS_MAX]; /* lent to the lane, already listening */
    size_t fabrics_count;
    enum reduce_set kernels; /* instruction set of the sums; 0: the fastest one of this machine */
    enum lane_policy policy;
    /* Longest time of a turn between two polls of the fabrics. Also the time by which a job may be
     * ahead of waiting jobs (A77). 0: jobs take turns chunk by chunk, however long a chunk
     * takes. */
    uint64_t turn_ns;
    /* size of the core's last-level cache; 0: unknown, and no sum uses streaming stores (A18) */
    uint64_t cache_bytes;
    /* Called on the lane's thread after a job has failed or lost a rank; lane_each_failure() and
     * lane_each_lost() list these. NULL: no call. Must not call functions of the lane. */
    void (*job_failed)(void *context);
    /* Called in the same way after a released piece has come to rest, or after a replica holder has
     * connected or has received the state (release.h). */
    void (*moving_news)(void *context);
    /* Called in the same way after a job has begun to wait for memory (wanted.h). NULL: jobs
     * allocate at once. */
    void (*memory_wanted)(void *context);
    void *context; /* argument of these three callbacks */
};

int lane_create(const struct lane_options *options, struct lane **ret_lane);
/* Frees all jobs. The caller has closed the fabrics before, so that no event follows. */
void lane_destroy(struct lane *lane);

void lane_set_id(struct lane *lane, uint32_t id);

/* Makes one turn: handles events, works on a few chunks in the order of the policy, sends messages.
 * True: there is more work; false: the caller may sleep until a fabric wakes it. */
bool lane_poll(struct lane *lane, uint64_t now_ns);
/* Makes the next lane_poll() skip the fabric with this index, because that fabric did not wake the
 * lane. */
void lane_pass_over(struct lane *lane, size_t fabric);

/* Terms of a tensor's declaration besides its shape. */
struct lane_terms {
    enum quorum quorum;
    /* QUORUM_FIRST: number of ranks that make a round. QUORUM_STALE: number of rounds by which a
     * rank may be ahead */
    uint32_t bound;
    /* this piece has QUORUM_FIRST, and the job's QUORUM_CHOSEN pieces use the sets that its rounds
     * decide */
    bool leads;
    bool measures;         /* the squares of inputs and results are summed */
    enum update_rule rule; /* 0: the lane stores no parameters */
    /* this piece has QUORUM_CHOSEN and a rule: its updates are rounds of the job, whose numbers
     * the announcements name, and all its other rounds are those of all ranks (A85) */
    bool follows;
    bool passes; /* this piece leads a job with backup workers: ranks outside a set get PASSED */
};

/* Declaration of a piece: a part of a tensor that this lane will serve. */
struct lane_piece {
    uint32_t id, task;
    unsigned dtype;
    uint64_t elements;
    const char *tensor; /* name of the tensor, for messages to users; copied */
    struct lane_terms terms;
    /* set of ranks: a bitmap of RECORD_MISSING_WORDS words, lent for the call; NULL: all ranks */
    const uint64_t *ranks;
    /* another piece has the first elements of the tensor, and counts the tensor's rounds */
    bool continues;
    /* aggregator that will store the copy of the state; 0: workers may store it (A49) */
    uint32_t keeper;
};

/* Places pieces of a job. The first piece also creates the job. `recovering`: workers report their
 * standing before any sum (W5). Placing a piece again under the same epoch has no effect. After an
 * error no piece of the call was added: -EINVAL: number of workers, dtype or shape differ from
 * those of the known job or piece; -EBUSY: the piece is here under another epoch; -EAGAIN: the
 * piece was dropped and its open round is not over; -ENOMEM; -ENOSPC: limit of the lane; -EDQUOT:
 * limit of the job. */
int lane_place(struct lane *lane, uint32_t job, const char *name, uint32_t workers, uint32_t epoch,
               bool recovering, const struct lane_piece *pieces, size_t count);

/* Sets aggregator `keeper` as replica holder of pieces that are here; 0: workers may store the
 * copy. `when_known`: the change waits until the copy at the former holder was read, if the state
 * may be there. Unknown pieces are ignored. */
void lane_set_keeper(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count,
                     uint32_t keeper, bool when_known);

/* Return the least memory that a piece needs, and that each of its ranks needs, for the plans of a
 * coordinator. */
size_t lane_piece_bytes(void);
size_t lane_rank_bytes(void);

/* Set the limit for the memory of all jobs together, and for each job; 0: no limit. The limits
 * apply from the next allocation on. */
void lane_set_memory_limit(struct lane *lane, uint64_t bytes);
void lane_set_job_memory_limit(struct lane *lane, uint64_t bytes);
/* Limits for one job: memory that its workers lend to the lane, memory that all workers of its
 * tenant lend, and memory of the lane that the job uses; 0: no limit. The limits apply from the
 * next lending or allocation on. */
struct lane_lent {
    uint64_t bytes_max;
    /* bytes that the tenant may lend to all lanes of the process (shares.h) */
    uint64_t tenant_bytes_max;
    uint64_t memory_bytes_max;
    uint32_t regions_max, tenant_regions_max;
    bool has_others;    /* other tenants exist */
    const char *tenant; /* name of the tenant, copied; "": the job belongs to no tenant's key */
};
void lane_set_lent_limits(struct lane *lane, uint32_t job, const struct lane_lent *limits);
/* Returns the bytes that the job uses now; 0: unknown job. */
uint64_t lane_job_memory(const struct lane *lane, uint32_t job);
/* Returns the bytes that all jobs use now, and their limit. */
void lane_memory(const struct lane *lane, uint64_t *ret_bytes, uint64_t *ret_limit_bytes);

/* Drops pieces, each when its open round is over. count 0: drops the job and its connections.
 * Unknown pieces and jobs are ignored. */
void lane_drop(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count);

/* Makes a ticket valid for one connection. -ENOENT: unknown job; -EINVAL: the ticket is for another
 * lane or process, or for a rank that does not exist. */
int lane_grant(struct lane *lane, const struct record_connect *ticket);

/* Sums over the job's measured pieces on this lane, for one round. */
struct lane_squares {
    uint64_t round;
    uint32_t inputs, pieces;
    double input_squares, result_squares;
    uint64_t losses; /* inputs that have a loss; counted once for each piece */
    double loss_sum;
};
/* Sums over the rounds of a job that ended on this lane (A22). */
struct lane_endings {
    uint64_t rounds;
    /* time from the first piece that could be worked on to the last that was done */
    uint64_t span_ns;
    /* lane time of the job in the last burst of a round, that is, since no piece was at work */
    uint64_t burst_ns;
};
struct lane_job_use {
    uint32_t job, connections;
    uint64_t heap_bytes, registered_bytes, registered_regions, busy_ns, pushed_bytes, rounds;
    uint64_t queue_ns;     /* time from ready to the first chunk, summed over all rounds */
    uint64_t handled_ns;   /* time in which a round could be worked on or was in progress */
    uint64_t stalled_ns;   /* time for which all workers together waited for this lane */
    uint64_t begun_rounds; /* rounds of `reference` that have begun */
    uint64_t begun_ns;     /* time at which the newest of these began */
    /* time at which the newest round of any piece began; 0: another round was still in progress */
    uint64_t round_begun_ns;
    uint64_t first_done_ns; /* time at which the first round on this lane was over; 0: none yet */
    struct lane_endings endings;
    struct lane_squares squares; /* round 0: nothing is measured */
    uint32_t reference;          /* piece whose rounds count as those of the job; 0: none yet */
    uint32_t states;             /* pieces that have parameters */
    uint32_t copied;             /* those among `states` that have a whole copy */
    uint32_t empty; /* those among `states` without a copy that have no state to lose */
};
struct lane_piece_use {
    uint32_t piece;
    uint64_t busy_ns;
};
struct lane_use {
    uint64_t arena_bytes, busy_ns, rounds, pushed_bytes;
    uint64_t helped_ns; /* part of busy_ns that other threads than the lane's have used */
    size_t jobs_count;
};
/* Fills `ret_use` and up to `jobs_max` rows. ret_use->jobs_count is the number of all jobs. */
void lane_measure(struct lane *lane, struct lane_use *ret_use, struct lane_job_use *ret_jobs,
                  size_t jobs_max);

/* Fills up to `rows_max` rows, one for each piece of the job, and returns their number. Visits all
 * pieces of the job. */
size_t lane_measure_pieces(const struct lane *lane, uint32_t job, struct lane_piece_use *ret_rows,
                           size_t rows_max);

/* A piece that the lane serves, listed for a coordinator that is back. */
struct lane_held {
    uint32_t job, piece, epoch;
    bool is_frozen; /* the piece is released, at rest or not */
};
void lane_each_piece(const struct lane *lane,
                     void (*each)(void *context, const struct lane_held *held), void *context);

/* Calls `each` for every job that has failed and is not dropped yet. */
void lane_each_failure(const struct lane *lane,
                       void (*each)(void *context, uint32_t job, int code, const char *text),
                       void *context);

/* Fails every job that has not failed yet. Connected workers get the error in the next turns. */
void lane_fail_jobs(struct lane *lane, int code, const char *text);

/* Returns whether no round is in progress and no message waits to be sent, so that the lane can
 * stop. */
bool lane_is_quiet(const struct lane *lane);
size_t lane_connections(const struct lane *lane);

#endif
