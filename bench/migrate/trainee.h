/* One worker of a migrating job. The worker sleeps for the emulated computing time, pushes a summed
 * load and parameters that lanes update, and records start and end of each iteration. */
#ifndef GRADPOOL_BENCH_MIGRATE_TRAINEE_H
#define GRADPOOL_BENCH_MIGRATE_TRAINEE_H

#include "client/gradpool.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRAINEE_ITERATIONS_MAX 16384
#define TRAINEE_PARTS_MAX 16

/* All workers obey an order at the end of the same iteration, because rank 0 sends the order to
 * all in the result of the load. */
enum trainee_order { TRAINEE_GO = 0, TRAINEE_PAUSE = 1, TRAINEE_RESTART = 2, TRAINEE_END = 3 };

/* Memory shared with the conductor, one struct for each worker. */
struct trainee_board {
    _Atomic uint32_t order;      /* the conductor's next order, read by rank 0 */
    _Atomic uint32_t iterations; /* number of ended iterations */
    int code;                    /* error that ended the worker */
    struct trainee_lap {
        /* aggregation lasts from pushed_ns to done_ns */
        uint64_t begin_ns, pushed_ns, done_ns, end_ns;
        uint64_t cpu_ns;             /* CPU time of the worker during aggregation */
        uint64_t load_sum, part_sum; /* checksums of results */
    } laps[TRAINEE_ITERATIONS_MAX];
};

struct trainee {
    const char *endpoint, *transport, *job, *saved_path; /* saved_path: snapshot for restarts */
    uint32_t rank, workers;
    uint64_t load_elements;
    uint64_t part_elements; /* number of elements with Adam; 0: lanes store no state of the job */
    uint32_t parts;         /* number of parts; each iteration trains the next one */
    uint64_t compute_ns, seed;
    enum gp_durability durability; /* place of the copies of the state; 0: no copies */
    struct trainee_board *board;
    /* Socket to the conductor. Rank 0 sends 'i' at the end of an iteration; each worker sends
     * 'p' when it pauses, and receives one byte to continue. */
    int fd;
};

/* Writes the name of the job, which changes with each restart. */
void trainee_job_name(const struct trainee *trainee, uint32_t restarts, char *ret_name,
                      size_t name_bytes);
/* Runs the worker until TRAINEE_END. Returns 0; or the negative errno of the first failed call,
 * with a text on standard error and in the board. */
int trainee_run(const struct trainee *trainee);
/* Returns the number of wrong results in all iterations of the board; -ENOMEM. */
int64_t trainee_count_wrong(const struct trainee *trainee);

#endif
