/* A lane: one core's aggregation. lane_poll() is its whole loop body, driven by a thread in
 * production (thread.h) and by hand in tests. Everything here belongs to the lane's thread. */
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

/* Who gets the next chunk of the lane's time (A20). */
enum lane_policy {
    LANE_FAIR,     /* one job after the other: processor sharing */
    LANE_SHORTEST, /* the job with the fewest bytes left in its open rounds; with ageing */
    LANE_FIFO,     /* the job that was ready first, until nothing of it is ready: to compare with */
};

struct lane_options {
    uint32_t id;          /* service-wide; may be set later, before the first grant */
    uint64_t incarnation; /* of the aggregator process: a ticket must name it */
    struct arena *arena;  /* lent */
    struct fabric *fabrics[LANE_FABRICS_MAX]; /* lent, listening */
    size_t fabrics_count;
    enum reduce_set kernels; /* 0: the best this machine has */
    enum lane_policy policy;
    /* Most of a turn between two looks at the network, and what a job may have of the lane's time
     * before jobs that have had less (A77); 0: jobs take turns chunk by chunk, however long. */
    uint64_t turn_ns;
    uint64_t cache_bytes; /* of the core's last-level cache; 0: unknown, nothing streams (A18) */
    /* On the lane's thread, after a job has failed (lane_each_failure() tells which); NULL: nobody
     * wants to know. Must not call back. */
    void (*job_failed)(void *context);
    /* Likewise, after a piece that was released has come to rest, or who is to keep a copy has
     * come, or has it (release.h). */
    void (*moving_news)(void *context);
    /* Likewise, after a job has begun to wait for memory (wanted.h); NULL: none waits. */
    void (*memory_wanted)(void *context);
    void *context; /* of all three */
};

int lane_create(const struct lane_options *options, struct lane **ret_lane);
/* Frees all jobs. The fabrics must be closed before: no event may come after it. */
void lane_destroy(struct lane *lane);

void lane_set_id(struct lane *lane, uint32_t id);

/* One turn: takes events, works on at most a few chunks (round-robin over jobs), tells workers.
 * Returns whether more work is due right now; false: sleep until a fabric wakes. */
bool lane_poll(struct lane *lane, uint64_t now_ns);
/* The next turn, and that one only, need not poll the fabric of this index: it slept, and nothing
 * woke it. */
void lane_pass_over(struct lane *lane, size_t fabric);

/* What the tensor's declaration says besides its shape. */
struct lane_terms {
    enum quorum quorum;
    uint32_t bound;
    bool leads; /* the set of each round (QUORUM_FIRST) is what the job's QUORUM_CHOSEN wait for */
    bool measures;         /* squares of inputs and results */
    enum update_rule rule; /* 0: the lane keeps no parameters */
};

/* A part of a tensor that the lane shall serve. */
struct lane_piece {
    uint32_t id, task;
    unsigned dtype;
    uint64_t elements;
    const char *tensor; /* name, for messages to people; copied */
    struct lane_terms terms;
    const uint64_t *ranks; /* the set: a bitmap of RECORD_MISSING_WORDS; NULL: all of the job */
    bool continues;        /* a tensor that begins in another piece, by which rounds are counted */
    uint32_t keeper;       /* the aggregator that keeps a copy of its state; 0: workers may (A49) */
};

/* Takes pieces of a job over; the job is made known with its first piece. `recovering`: workers
 * tell where they stand before anything is summed (W5). Placing a piece again is no error when it
 * is the same. -EINVAL: workers, dtype or shape do not agree with what is known; -EBUSY: it is here
 * under another epoch; -EAGAIN: it was dropped and its open round is not over; -ENOMEM; -ENOSPC:
 * the lane may not hold more. After an error nothing new is here. */
int lane_place(struct lane *lane, uint32_t job, const char *name, uint32_t workers, uint32_t epoch,
               bool recovering, const struct lane_piece *pieces, size_t count);

/* Another keeper for pieces that are here; `when_known`: not before the copy has been looked at
 * that the one before may have. Unknown pieces are no error. */
void lane_set_keeper(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count,
                     uint32_t keeper, bool when_known);

/* What a piece costs the lane at least, and each rank of it: for a coordinator that plans. */
size_t lane_piece_bytes(void);
size_t lane_rank_bytes(void);

/* How much the lane may hold for all its jobs, and for each; 0: no limit. Holds from the next
 * allocation on. */
void lane_set_memory_limit(struct lane *lane, uint64_t bytes);
void lane_set_job_memory_limit(struct lane *lane, uint64_t bytes);
/* Limits of what workers of a job, and of all jobs of its tenant, lend to the lane, and the job's
 * may hold of its memory; 0: no limit. Holds from the next lending, or allocation, on. */
struct lane_lent {
    uint64_t bytes_max;
    uint64_t tenant_bytes_max; /* to all lanes of the process (shares.h) */
    uint64_t memory_bytes_max;
    uint32_t regions_max, tenant_regions_max;
    bool has_others;    /* other tenants exist */
    const char *tenant; /* copied; "": one without a key */
};
void lane_set_lent_limits(struct lane *lane, uint32_t job, const struct lane_lent *limits);
/* Held now for the job. */
uint64_t lane_job_memory(const struct lane *lane, uint32_t job);
/* Held now for all, and allowed. */
void lane_memory(const struct lane *lane, uint64_t *ret_bytes, uint64_t *ret_limit_bytes);

/* Drops pieces; count 0: the job with its connections. Unknown ones are no error. */
void lane_drop(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count);

/* The ticket will be honoured once. -ENOENT: unknown job. -EINVAL: not for this lane. */
int lane_grant(struct lane *lane, const struct record_connect *ticket);

/* Sums over the job's measured pieces here, of one round. */
struct lane_squares {
    uint64_t round;
    uint32_t inputs, pieces;
    double input_squares, result_squares;
    uint64_t losses; /* inputs that came with one, counted a piece */
    double loss_sum;
};
/* How the job's rounds end here, added up (A22). */
struct lane_endings {
    uint64_t rounds;
    uint64_t span_ns;  /* from the first piece that could be worked on to the last that was done */
    uint64_t burst_ns; /* lane time since there was nothing to work on last */
};
struct lane_job_use {
    uint32_t job, connections;
    uint64_t heap_bytes, registered_bytes, registered_regions, busy_ns, pushed_bytes, rounds;
    uint64_t queue_ns;               /* of all rounds: from ready to their first chunk */
    uint64_t handled_ns;             /* in which some round could be worked on or was */
    uint64_t stalled_ns;             /* that its workers waited for this lane, together */
    uint64_t begun_rounds, begun_ns; /* of `reference`: rounds begun, when the newest did */
    uint64_t round_begun_ns; /* the newest here, of any piece; 0: the one before was not over */
    uint64_t first_done_ns;  /* when the first round here was over; 0: none was */
    struct lane_endings endings;
    struct lane_squares squares; /* round 0: nothing is measured */
    uint32_t reference;          /* the piece whose rounds count as the job's; 0: none yet */
    uint32_t states, copied;     /* pieces that keep parameters; those of them with a whole copy */
    uint32_t empty;              /* those without one that have nothing to lose */
};
struct lane_piece_use {
    uint32_t piece;
    uint64_t busy_ns;
};
struct lane_use {
    uint64_t arena_bytes, busy_ns, rounds, pushed_bytes;
    uint64_t helped_ns; /* of busy_ns, spent by other threads than the lane's */
    size_t jobs_count;
};
/* Fills `ret_use` and up to `jobs_max` rows; ret_use->jobs_count says how many there are. */
void lane_measure(struct lane *lane, struct lane_use *ret_use, struct lane_job_use *ret_jobs,
                  size_t jobs_max);

/* Up to `rows_max` pieces of the job; returns how many. Costs a step for each piece it has. */
size_t lane_measure_pieces(const struct lane *lane, uint32_t job, struct lane_piece_use *ret_rows,
                           size_t rows_max);

/* What the lane serves, for a coordinator that comes back: calls `each` for every piece. */
struct lane_held {
    uint32_t job, piece, epoch;
    bool is_frozen; /* released, at rest or not */
};
void lane_each_piece(const struct lane *lane,
                     void (*each)(void *context, const struct lane_held *held), void *context);

/* The jobs that have failed here and are not dropped yet: calls `each` for every one. */
void lane_each_failure(const struct lane *lane,
                       void (*each)(void *context, uint32_t job, int code, const char *text),
                       void *context);

/* Every job that has not failed yet fails: whoever is connected hears it with the next turns. */
void lane_fail_jobs(struct lane *lane, int code, const char *text);

/* No round is being summed and nothing is owed to anybody: a good moment to stop. */
bool lane_is_quiet(const struct lane *lane);
size_t lane_connections(const struct lane *lane);

#endif
