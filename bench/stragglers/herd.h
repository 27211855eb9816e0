/* The workers of one job, a process each, that go round after round until they are told to stop;
 * and when each round ended. */
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
    const char *endpoint, *transport; /* transport NULL: as any client chooses */
    const char *job;
    const struct model *model;
    double bytes_scale; /* of tensors, against the table */
    uint64_t step_ns;   /* that a worker sleeps before it pushes */
    uint32_t workers;
    bool is_bound; /* to core `core` (index): an injector is to hit the lane, not them */
    uint32_t core;
};

/* Shared with the workers. */
struct herd_board {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t rounds;                  /* that have ended */
    uint32_t stop_after, pause_after; /* rounds; UINT32_MAX: not yet */
    uint32_t paused;                  /* workers that wait */
    uint64_t wrong, checked;          /* as herd_stop() hands them out */
    uint64_t ended_ns[HERD_ROUNDS_MAX];
};

struct herd {
    struct herd_setting setting;
    struct herd_board *board;
    pid_t workers[HERD_WORKERS_MAX];
};

/* Negative errno, with a text on standard error. */
int herd_start(struct herd *herd, const struct herd_setting *setting);
/* Returns when so many rounds have ended. -ETIMEDOUT: none ended for a minute. */
int herd_await(struct herd *herd, uint32_t rounds);
uint32_t herd_rounds(struct herd *herd);
/* All stand still between two rounds, until they are let go on. */
int herd_pause(struct herd *herd);
void herd_go_on(struct herd *herd);
/* Elements that are not the right ones, and looks at a round's results: each worker's first round
 * and its last. */
struct herd_checks {
    uint64_t wrong, checked;
};
/* Lets them end, and tells what they have found until then: the last rounds come only now. -EIO,
 * with a text on standard error: one failed, or has not looked twice. Safe on one that did not
 * start: nothing was looked at. */
int herd_stop(struct herd *herd, struct herd_checks *ret_checks);
/* How long each of the rounds [first, end) took, pauses included. */
void herd_times(struct herd *herd, uint32_t first, uint32_t end, double *ret_ns);

#endif
