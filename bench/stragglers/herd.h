/* The workers of one job, one process each. The workers run rounds until herd_stop(), and record
 * the end time of each round. */
#ifndef GRADPOOL_BENCH_HERD_H
#define GRADPOOL_BENCH_HERD_H

#include "bench/sim/input/models.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define HERD_WORKERS_MAX 16
#define HERD_ROUNDS_MAX 20000

struct herd_setting {
    const char *endpoint, *transport; /* transport NULL: the client's default */
    const char *job;
    const struct model *model;
    double bytes_scale; /* bytes of a tensor here, divided by its bytes in the model */
    uint64_t step_ns;   /* sleep of a worker before each push */
    uint32_t workers;
    /* Whether workers are bound to core number `core`, so that an injector slows the lane and not
     * the workers. */
    bool is_bound;
    uint32_t core;
};

/* Memory shared with the workers. */
struct herd_board {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t rounds;                  /* number of ended rounds */
    uint32_t stop_after, pause_after; /* numbers of rounds; UINT32_MAX: not set */
    uint32_t paused;                  /* number of waiting workers */
    uint64_t wrong, checked;          /* sums of the workers' checks, returned by herd_stop() */
    uint64_t ended_ns[HERD_ROUNDS_MAX];
};

struct herd {
    struct herd_setting setting;
    struct herd_board *board;
    pid_t workers[HERD_WORKERS_MAX];
};

/* Starts the workers. Returns 0, or a negative errno with a text on standard error. */
int herd_start(struct herd *herd, const struct herd_setting *setting);
/* Returns after `rounds` ended rounds. -ETIMEDOUT: no round ended for a minute. */
int herd_await(struct herd *herd, uint32_t rounds);
uint32_t herd_rounds(struct herd *herd);
/* Stops all workers between two rounds until herd_go_on(). */
int herd_pause(struct herd *herd);
void herd_go_on(struct herd *herd);
/* Number of wrong elements, and of checked results. Each worker checks its first round and its
 * last. */
struct herd_checks {
    uint64_t wrong, checked;
};
/* Ends the workers and returns their checks, including the last rounds. -EIO, with a text on
 * standard error: a worker failed, or has not checked two rounds. May be called if herd_start()
 * failed; then there are no checks. */
int herd_stop(struct herd *herd, struct herd_checks *ret_checks);
/* Returns the length of each of the rounds [first, end), including pauses. */
void herd_times(struct herd *herd, uint32_t first, uint32_t end, double *ret_ns);

#endif
