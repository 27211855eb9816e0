/* A worker of the job that `resize` measures: an ordinary client (B2). gp_deal_declare() divides
 * the samples of each step among the workers. */
#ifndef GRADPOOL_BENCH_RESIZE_RESIZE_WORKER_H
#define GRADPOOL_BENCH_RESIZE_RESIZE_WORKER_H

#include <stdatomic.h>
#include <stdint.h>

#define RESIZE_FOUNDERS 2
#define RESIZE_WORKERS (RESIZE_FOUNDERS + 1)
#define RESIZE_STEPS_MAX 20000

/* Memory that the command shares with all workers. */
struct resize_board {
    atomic_uint wanted;  /* number of workers that the command has ordered */
    atomic_uint settled; /* number of workers after the last resize that rank 0 has completed */
    atomic_uint shares;  /* number of steps in which the late worker had samples */
    atomic_ullong wrong; /* number of elements that differ from the expected values */
    atomic_uint steps[RESIZE_FOUNDERS];
    uint64_t ends_ns[RESIZE_FOUNDERS][RESIZE_STEPS_MAX];
};

struct resize_plan {
    const char *endpoint, *transport;
    uint64_t gradient_elements, state_elements;
    uint64_t compute_ns; /* emulated computing time of a step */
    uint64_t setup_ns;   /* emulated work of a late worker before its first step */
    struct resize_board *board;
};

/* Trains until the job has no place for this rank. Returns 0, or a negative errno, with a text on
 * standard error. */
int resize_worker_run(const struct resize_plan *plan, uint32_t rank);

#endif
