/* One live run: 16 worker processes train one job of a service, with the gradients of
 * crew_problem.h and drawn step times, until the loss is at its target. */
#ifndef GRADPOOL_BENCH_BACKUP_LIVE_CREW_H
#define GRADPOOL_BENCH_BACKUP_LIVE_CREW_H

#include "bench/backup/live/crew_problem.h"
#include "bench/backup/training/durations.h"

#define CREW_WORKERS 16
#define CREW_ROUNDS_MAX 4096

struct crew_setting {
    const char *endpoint, *transport, *job; /* transport: "tcp" or "shm" */
    const struct grid_rule *rule;
    const struct grid_times *times;
    const struct jitter *jitter;
    /* `unit_ns`: real duration of a unit of time, which is about the duration of one gradient */
    uint64_t seed, unit_ns;
    double target; /* loss at which the run ends */
};

struct crew_result {
    double seconds; /* time from the first round to the target; NAN: not reached */
    uint64_t rounds;
    double k_mean;  /* mean number of gradients in a round */
    double dropped; /* mean fraction of the ranks whose gradient is missing in a round */
    /* largest number of consecutive rounds in which the same rank has no gradient */
    uint64_t absence;
    /* true: in each round, parameters are equal on all ranks that have the result of the round */
    bool bits_equal;
    uint64_t compared; /* number of rounds whose result several ranks had */
};

/* Runs the workers and returns when all have ended. -EIO: a worker failed, with a text on standard
 * error. */
int live_crew_run(const struct crew_setting *setting, struct crew_result *ret_result);

#endif
