/* What jobs lose to each other on shared lanes, event by event, chunk by chunk. PURE: same input
 * and seeds, same result. Knows nothing of any formula.
 *
 * A job is synchronous: its workers compute, each piece of a gradient becomes ready on the way
 * through the backward pass, goes out over the worker's line, and is summed on its lane once the
 * slowest worker's part is there. The round ends with the last piece, and the next begins. A lane
 * serves the jobs that have work there a chunk each, in turn. */
#ifndef GRADPOOL_BENCH_SIM_LANES_QUEUE_H
#define GRADPOOL_BENCH_SIM_LANES_QUEUE_H

#include <stddef.h>
#include <stdint.h>

#define QUEUE_WORKERS_MAX 4096

struct queue_piece {
    uint32_t lane;
    double ready;   /* share of the backward pass after which it is complete; never falls */
    double wire_ns; /* on a worker's line */
    double lane_ns; /* that it holds up its lane, for all workers */
};

struct queue_job {
    double forward_ns, backward_ns;
    double jitter; /* of a worker's step time: standard deviation by mean, anew each round */
    uint32_t workers;
    uint64_t seed;
    double start_ns; /* of its first round */
    const struct queue_piece *pieces;
    size_t pieces_count;
};

/* Rounds that count: from the end of round `first`, `count` of them took `elapsed_ns`. */
struct queue_outcome {
    uint64_t first, count;
    double elapsed_ns;
};

/* All jobs side by side until `end_ns`. The first `warm_rounds` of each do not count. -ENOMEM. */
int queue_run(const struct queue_job *jobs, size_t count, double chunk_ns, double end_ns,
              uint64_t warm_rounds, struct queue_outcome *ret_outcomes);

/* The same rounds of the job with nobody else: how long they take, and how much their lengths
 * scatter (standard deviation; may be NULL). -ENOMEM. */
int queue_alone(const struct queue_job *job, uint64_t first, uint64_t count, double *ret_elapsed_ns,
                double *ret_deviation_ns);

/* Of one lane, means over rounds. */
struct queue_ending {
    double span_ns;  /* from a round's first work to its last; 0: it has none of the job's pieces */
    double burst_ns; /* work since the lane was last idle */
};

/* How the first `count` rounds of the job end on each lane with nobody else. One `ret_endings` for
 * each lane up to the last with pieces. -ENOMEM. */
int queue_endings(const struct queue_job *job, uint64_t count, struct queue_ending *ret_endings);

#endif
