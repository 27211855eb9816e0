/* Simulates shared lanes event by event, chunk by chunk, and measures the losses of jobs. Pure: the
 * same input and seeds give the same result. Uses no formula of loss.
 *
 * A job is synchronous. Its workers compute, and each piece of a gradient becomes ready during the
 * backward pass. The piece is sent over the worker's network. Its lane sums the piece when the
 * gradient of the slowest worker has arrived. A round ends when all pieces are summed; then the
 * next round begins. A lane serves the jobs with work in cyclic order, one chunk each. */
#ifndef GRADPOOL_BENCH_SIM_LANES_QUEUE_H
#define GRADPOOL_BENCH_SIM_LANES_QUEUE_H

#include <stddef.h>
#include <stdint.h>

#define QUEUE_WORKERS_MAX 4096

struct queue_piece {
    uint32_t lane;
    double ready;   /* fraction of the backward pass after which the piece is complete; ascending */
    double wire_ns; /* time of the piece on the network of a worker */
    double lane_ns; /* lane time of the piece, for all workers */
};

struct queue_job {
    double forward_ns, backward_ns;
    /* Jitter of a worker's step time in each round: standard deviation divided by mean. */
    double jitter;
    uint32_t workers;
    uint64_t seed;
    double start_ns; /* start of the first round */
    const struct queue_piece *pieces;
    size_t pieces_count;
};

/* The measured rounds: `count` rounds after the end of round `first` took `elapsed_ns`. */
struct queue_outcome {
    uint64_t first, count;
    double elapsed_ns;
};

/* Simulates all jobs together until `end_ns`. The first `warm_rounds` rounds of each job do not
 * count. Returns 0 or -ENOMEM. */
int queue_run(const struct queue_job *jobs, size_t count, double chunk_ns, double end_ns,
              uint64_t warm_rounds, struct queue_outcome *ret_outcomes);

/* Simulates `count` rounds of a job after round `first`, without other jobs. `ret_elapsed_ns`:
 * total time of these rounds; `ret_deviation_ns` (may be NULL): standard deviation of their
 * lengths. Returns 0 or -ENOMEM. */
int queue_alone(const struct queue_job *job, uint64_t first, uint64_t count, double *ret_elapsed_ns,
                double *ret_deviation_ns);

/* The end of rounds on one lane; means over rounds. */
struct queue_ending {
    /* time from a round's first work to its last; 0: the lane has no piece of the job */
    double span_ns;
    /* lane time from the moment at which the lane was last idle to the end of the round */
    double burst_ns;
};

/* Simulates the ends of the first `count` rounds on each lane without other jobs. `ret_endings` has
 * one entry for each lane up to the last one with pieces. Returns 0 or -ENOMEM. */
int queue_endings(const struct queue_job *job, uint64_t count, struct queue_ending *ret_endings);

#endif
