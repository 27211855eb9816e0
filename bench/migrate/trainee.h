/* One worker of a job that migrates: sleeps while it "computes", pushes a load that is summed and
 * parameters that its lanes update, and notes when each iteration began and ended. */
#ifndef GRADPOOL_BENCH_MIGRATE_TRAINEE_H
#define GRADPOOL_BENCH_MIGRATE_TRAINEE_H

#include "client/gradpool.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRAINEE_ITERATIONS_MAX 16384
#define TRAINEE_PARTS_MAX 16

/* All workers hear an order at the end of the same iteration: rank 0 passes it on with the load. */
enum trainee_order { TRAINEE_GO = 0, TRAINEE_PAUSE = 1, TRAINEE_RESTART = 2, TRAINEE_END = 3 };

/* Shared with the conductor; one a worker. */
struct trainee_board {
    _Atomic uint32_t order;      /* of rank 0: what the conductor wants next */
    _Atomic uint32_t iterations; /* that have ended */
    int code;                    /* why it ended early */
    struct trainee_lap {
        uint64_t begin_ns, pushed_ns, done_ns, end_ns; /* pushed .. done: aggregation */
        uint64_t cpu_ns;                               /* of the worker, for that */
        uint64_t load_sum, part_sum;                   /* checksums of results */
    } laps[TRAINEE_ITERATIONS_MAX];
};

struct trainee {
    const char *endpoint, *transport, *job, *saved_path; /* saved_path: for restarts */
    uint32_t rank, workers;
    uint64_t load_elements;
    uint64_t part_elements; /* with Adam; 0: nothing is kept for the job */
    uint32_t parts;         /* one of them is trained in each iteration, in turn */
    uint64_t compute_ns, seed;
    enum gp_durability durability; /* 0: none */
    struct trainee_board *board;
    int fd; /* to the conductor: 'i' an iteration has ended (rank 0), 'p' paused; from it: go on */
};

/* Of its job, which has another name after each restart. */
void trainee_job_name(const struct trainee *trainee, uint32_t restarts, char *ret_name,
                      size_t name_bytes);
/* Returns when told to end: 0, or the negative errno of the first call that failed, with a text on
 * standard error and in the board. */
int trainee_run(const struct trainee *trainee);
/* Results of all iterations of that board that are not the right ones; -ENOMEM. */
int64_t trainee_count_wrong(const struct trainee *trainee);

#endif
