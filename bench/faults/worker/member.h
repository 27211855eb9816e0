/* One worker of an elastic job. The worker sums gradients or updates parameters together with all
 * present members. Each gradient contains its rank and number, so a result shows which gradients it
 * contains. */
#ifndef GRADPOOL_BENCH_FAULTS_WORKER_MEMBER_H
#define GRADPOOL_BENCH_FAULTS_WORKER_MEMBER_H

#include "bench/faults/worker/mirror.h"
#include "bench/faults/worker/victim.h"

#define MEMBERS_FEWEST 3 /* number of first members of the job */
#define MEMBERS_MOST LEDGER_RANKS

struct member {
    const char *endpoint, *transport, *job;
    uint32_t rank;
    /* number of this process among the processes of its rank, from 1 */
    uint32_t coming;
    /* true: the job has parameters with an update rule and copies; false: the job sums */
    bool updates;
    enum gp_durability durability; /* place of the copies */
    bool begins;                   /* whether this process is one of the first members of the job */
    /* `compute_ns` is the time for which the worker pauses in each round */
    uint64_t seed, compute_ns;
    struct victim_board *board;
    struct ledger *ledger;
    struct mirror_book *book; /* shared states of a job with an update rule (mirror.h) */
};

/* Runs the worker until its ordered end, until a resize removes the rank, or until an error.
 * Returns 0 or a negative errno. */
int member_run(const struct member *member);

#endif
