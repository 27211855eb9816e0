/* One worker of a job whose workers come and go: sums with whoever is there, or makes steps of
 * parameters with them, and says in each gradient which one it is, so that each result tells of
 * which gradients it must be. */
#ifndef GRADPOOL_BENCH_FAULTS_WORKER_MEMBER_H
#define GRADPOOL_BENCH_FAULTS_WORKER_MEMBER_H

#include "bench/faults/worker/mirror.h"
#include "bench/faults/worker/victim.h"

#define MEMBERS_FEWEST 3 /* that the job begins with */
#define MEMBERS_MOST LEDGER_RANKS

struct member {
    const char *endpoint, *transport, *job;
    uint32_t rank;
    uint32_t coming;               /* how often this rank has come, this time included */
    bool updates;                  /* with copies of parameters and moment; else sums */
    enum gp_durability durability; /* where these lie */
    bool begins;                   /* one of those that the job begins with */
    uint64_t seed, compute_ns;     /* the pause of the worker in each round */
    struct victim_board *board;
    struct ledger *ledger;
    struct mirror_book *book; /* of updates */
};

/* Returns when told to end, when a resize wants it gone, or when something has failed: 0, or a
 * negative errno. */
int member_run(const struct member *member);

#endif
