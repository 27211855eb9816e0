/* One worker of an elastic job: sums, or updates parameters, with all present members. Each
 * gradient names its rank and number, so that a result shows which gradients it must have. */
#ifndef GRADPOOL_BENCH_FAULTS_WORKER_MEMBER_H
#define GRADPOOL_BENCH_FAULTS_WORKER_MEMBER_H

#include "bench/faults/worker/mirror.h"
#include "bench/faults/worker/victim.h"

#define MEMBERS_FEWEST 3 /* first members of the job */
#define MEMBERS_MOST LEDGER_RANKS

struct member {
    const char *endpoint, *transport, *job;
    uint32_t rank;
    uint32_t coming;               /* number of this process among the rank's processes, from 1 */
    bool updates;                  /* parameters with an update rule, copied; otherwise sums */
    enum gp_durability durability; /* place of the copies */
    bool begins;                   /* one of the first members of the job */
    uint64_t seed, compute_ns;     /* the pause of the worker in each round */
    struct victim_board *board;
    struct ledger *ledger;
    struct mirror_book *book; /* for updates */
};

/* Returns at the ordered end, when a resize removes the rank, or after an error: 0, or a negative
 * errno. */
int member_run(const struct member *member);

#endif
