/* A lane aggregates on one core. lane_poll() runs one turn of the lane's loop. The thread of
 * thread.h calls lane_poll(), and tests call it directly. All functions of this header must run on
 * the lane's thread. */
#ifndef GRADPOOL_LANE_LANE_H
#define GRADPOOL_LANE_LANE_H

#include "svc/fabric/fabric.h"
#include "svc/lane/memory/arena.h"
#include "svc/reduce/update.h"
#include "svc/wire/backup_terms.h"
#include "svc/wire/record.h"
#include "svc/wire/terms.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LANE_FABRICS_MAX 2
#define LANE_WORKERS_MAX 768

struct lane;

/* Order in which jobs receive the next part of the lane's time (A20). */
enum lane_policy {
    LANE_FAIR, /* jobs take turns */
    /* the job with the fewest bytes left in its open rounds is first; a job that has waited for
     * POLICY_PASSES_MAX chunks precedes this job */
    LANE_SHORTEST,
    /* the job that was ready first runs until none of its pieces is ready; for comparisons only */
    LANE_FIFO,
};

struct lane_options {
    /* number of the lane in the service; may be set later, but before the first grant */
    uint32_t id;
    /* random number of the aggregator process; a ticket with another number is refused */
    uint64_t incarnation;
    struct arena *arena;                      /* borrowed by the lane */
    struct fabric *fabrics[LANE_FABRICS_MAX]; /* borrowed by the lane; already listening */
    size_t fabrics_count;
    enum reduce_set kernels; /* instruction set for sums; 0: the fastest set of this machine */
    enum lane_policy policy;
    /* Longest time between two polls of the fabrics. The lane time of a job exceeds the lane time
     * of waiting jobs by at most the same time (A77). 0: jobs take turns after each chunk. */
    uint64_t turn_ns;
    /* size of the core's last-level cache; 0: unknown, so sums use no streaming stores (A18) */
    uint64_t cache_bytes;
    /* Called on the lane's thread after a job has failed or lost a rank. lane_each_failure() and
     * lane_each_lost() list the jobs and ranks. May be NULL. Must not call functions of the
     * lane. */
    void (*job_failed)(void *context);
    /* Called like job_failed, when a released piece has become idle, when a replica holder has
     * connected or received the state (release.h), or when a log or copy of tables has a report
     * (rows/log/row_log.h, rows/copy/copy.h). */
    void (*moving_news)(void *context);
    /* Called like job_failed, when a job has begun to wait for memory (wanted.h), or has a request
     * for memory of rows (rows/room/room.h). NULL: jobs allocate at once. */
    void (*memory_wanted)(void *context);
    void *context; /* argument of the three callbacks */
};

int lane_create(const struct lane_options *options, struct lane **ret_lane);
/* Frees the lane and all jobs. The caller has closed the fabrics, so no event follows. */
void lane_destroy(struct lane *lane);

void lane_set_id(struct lane *lane, uint32_t id);

/* Runs one turn: handles events, works on a few chunks in the order of the policy, and sends
 * messages. Returns true if more work is pending. After false the caller may sleep until a fabric
 * wakes the lane. */
bool lane_poll(struct lane *lane, uint64_t now_ns);
/* Returns the time at which lane_poll() has work even if no fabric wakes the lane; 0: none. */
uint64_t lane_next_ns(const struct lane *lane);
/* The next lane_poll() skips the fabric with this index, because this fabric did not wake the
 * lane. */
void lane_pass_over(struct lane *lane, size_t fabric);

/* Role of a piece for the sets of its job. */
enum lane_role {
    ROLE_NONE,
    /* this piece has QUORUM_FIRST; its rounds decide the sets of the job's QUORUM_CHOSEN pieces */
    LEADS_SETS,
    /* like LEADS_SETS, in a job with backup workers: ranks outside a set receive PASSED, and
     * request results */
    LEADS_ROUNDS,
    /* This piece has QUORUM_CHOSEN. Its updates, or without a rule its sums, are rounds of the job,
     * and their announcements have the number of the job's round. In all other rounds of the piece
     * all ranks take part (A85). */
    FOLLOWS_ROUNDS,
};

/* Terms of a tensor's declaration, apart from its shape. */
struct lane_terms {
    enum quorum quorum;
    /* QUORUM_FIRST: number of ranks that complete a round. QUORUM_STALE: number of rounds by which
     * a rank may be ahead */
    uint32_t bound;
    enum lane_role role;
    bool measures;         /* the lane sums the squares of inputs and results */
    enum update_rule rule; /* 0: the lane stores no parameters */
    /* FOLLOWS_ROUNDS without a rule: number of results that the lane stores. LEADS_ROUNDS: number
     * of rounds by which a rank may lag behind the job; 0: any number (A95) */
    uint32_t lag;
};

/* Declaration of a piece, which is a part of a tensor on one lane. */
struct lane_piece {
    uint32_t id, task;
    unsigned dtype;
    uint64_t elements;
    const char *tensor; /* name of the tensor, for messages to users; copied */
    struct lane_terms terms;
    /* bitmap of ranks (RECORD_MISSING_WORDS words), valid during the call; NULL: all ranks */
    const uint64_t *ranks;
    /* this is not the first piece of the tensor; only the first piece counts the rounds of the
     * tensor */
    bool continues;
    /* aggregator that stores the replica; 0: workers may store it (A49) */
    uint32_t holder;
    /* newest round whose COMMIT a rank had when it left the job; 0: none */
    uint64_t committed;
    /* backup workers of the job, valid during the call; NULL: none */
    const struct backup_terms *backup;
};

/* Places pieces of a job. The first piece also creates the job. `recovering`: workers report their
 * standing before any sum (W5). Placing a piece again under the same epoch has no effect. Returns 0
 * or a negative errno; after an error no piece of the call was added. -EINVAL: the number of
 * workers or gradients, the dtype or the shape differs from the known job or piece. -EBUSY: the
 * piece is here under another epoch. -EAGAIN: the piece was dropped, but its round is still open.
 * -ENOSPC: the limit of the lane would be exceeded. -EDQUOT: the limit of the job would be
 * exceeded. -ENOMEM: no memory. */
int lane_place(struct lane *lane, uint32_t job, const char *name, uint32_t workers, uint32_t epoch,
               bool recovering, const struct lane_piece *pieces, size_t count);

/* Makes the aggregator `holder` the replica holder of pieces on this lane; 0: workers may store the
 * replica. `when_known`: if the former holder's replica may have the state, the change waits until
 * the lane has read this replica. Unknown pieces are ignored. */
void lane_set_holder(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count,
                     uint32_t holder, bool when_known);

/* Return the least memory for a piece, and for each of its ranks. The coordinator plans with these
 * values. */
size_t lane_piece_bytes(void);
size_t lane_rank_bytes(void);

/* Set the limit for the memory of all jobs together, and for each job; 0: no limit. A limit applies
 * from the next allocation on. */
void lane_set_memory_limit(struct lane *lane, uint64_t bytes);
void lane_set_job_memory_limit(struct lane *lane, uint64_t bytes);
/* Limits for one job; 0: no limit. The limits of bytes and regions apply to the memory that the
 * workers of the job lend, and the limits named tenant_ to the memory that all workers of its
 * tenant lend. memory_bytes_max limits the job's memory on the lane. A limit applies from the next
 * lending or allocation on. */
struct lane_lent {
    uint64_t bytes_max;
    /* bytes that the tenant may lend to all lanes of the process (shares.h) */
    uint64_t tenant_bytes_max;
    uint64_t memory_bytes_max;
    uint32_t regions_max, tenant_regions_max;
    bool has_others; /* other tenants exist */
    /* name of the tenant, copied; "": the job belongs to no tenant with a key */
    const char *tenant;
};
void lane_set_lent_limits(struct lane *lane, uint32_t job, const struct lane_lent *limits);
/* Returns the bytes that the job uses; 0: unknown job. */
uint64_t lane_job_memory(const struct lane *lane, uint32_t job);
/* Returns the bytes that all jobs use, and their limit. */
void lane_memory(const struct lane *lane, uint64_t *ret_bytes, uint64_t *ret_limit_bytes);

/* Drops pieces, each at the end of its open round. With `count` 0, the job and its connections are
 * dropped. Unknown pieces and jobs are ignored. */
void lane_drop(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count);

/* Makes a ticket valid for one connection. Returns 0, -ENOENT for an unknown job, or -EINVAL if the
 * ticket is for another lane or process, or for a rank that does not exist. */
int lane_grant(struct lane *lane, const struct record_connect *ticket);

/* Sums over the measured pieces of a job on this lane, for one round. */
struct lane_squares {
    uint64_t round;
    uint32_t inputs, pieces;
    double input_squares, result_squares;
    uint64_t losses; /* number of inputs with a known loss; an input counts once for each piece */
    double loss_sum;
};
/* Sums over the rounds of a job that have ended on this lane (A22). */
struct lane_endings {
    uint64_t rounds;
    /* time from the instant at which the first piece was ready to the end of the last piece */
    uint64_t span_ns;
    /* lane time of the job since it last had no piece in progress */
    uint64_t burst_ns;
};
struct lane_job_use {
    uint32_t job, connections;
    uint64_t heap_bytes, registered_bytes, registered_regions, busy_ns, pushed_bytes, rounds;
    /* time from the instant at which a round is ready to its first chunk, summed over all rounds */
    uint64_t queue_ns;
    uint64_t handled_ns;   /* time in which a round was ready or in progress */
    uint64_t stalled_ns;   /* sum of the times for which the workers have waited for this lane */
    uint64_t begun_rounds; /* number of rounds of `reference` that have begun */
    uint64_t begun_ns;     /* beginning of the newest round of `reference` */
    /* beginning of the newest round of any piece; 0: at this beginning another round was still in
     * progress */
    uint64_t round_begun_ns;
    uint64_t first_done_ns; /* end of the first round on this lane; 0: none has ended */
    struct lane_endings endings;
    struct lane_squares squares; /* round 0: the job measures no gradients */
    uint32_t reference;          /* piece whose rounds count, or TABLE_LOAD_CLOCKS; 0: none yet */
    uint32_t states;             /* number of pieces with parameters */
    uint32_t copied;             /* number of pieces with parameters whose replica is complete */
    /* number of pieces with an update rule that have neither a state nor a replica */
    uint32_t empty;
};
struct lane_piece_use {
    uint32_t piece;
    uint64_t busy_ns;
};
struct lane_use {
    uint64_t arena_bytes, busy_ns, rounds, pushed_bytes;
    uint64_t helped_ns; /* part of busy_ns that other threads have used for this lane */
    size_t jobs_count;
};
/* Fills `ret_use` and up to `jobs_max` rows. ret_use->jobs_count is set to the number of all
 * jobs. */
void lane_measure(struct lane *lane, struct lane_use *ret_use, struct lane_job_use *ret_jobs,
                  size_t jobs_max);

/* Fills up to `rows_max` rows: one row for each piece of the job, and, if the job has tables, one
 * row for all its tables (TABLE_LOAD_CLOCKS). Returns the number of rows. The cost is linear in the
 * number of pieces. */
size_t lane_measure_pieces(const struct lane *lane, uint32_t job, struct lane_piece_use *ret_rows,
                           size_t rows_max);

/* A piece that the lane serves, in the list for a coordinator that has restarted. */
struct lane_held {
    uint32_t job, piece, epoch;
    bool is_frozen; /* the piece was released; an operation may still be posted */
};
void lane_each_piece(const struct lane *lane,
                     void (*each)(void *context, const struct lane_held *held), void *context);

/* Calls `each` for every job that has failed and that the coordinator has not dropped. */
void lane_each_failure(const struct lane *lane,
                       void (*each)(void *context, uint32_t job, int code, const char *text),
                       void *context);

/* Fails every job that has not failed. Connected workers receive the error in the next turns. */
void lane_fail_jobs(struct lane *lane, int code, const char *text);

/* Returns whether no round is in progress and no message is pending, so that the lane can stop. */
bool lane_is_quiet(const struct lane *lane);
size_t lane_connections(const struct lane *lane);

#endif
