/* Queues of jobs with a fixed number of workers: the baselines of `explore --simulate`. FlexPS'
 * rules follow its public source, as far as one pool of slots has them: a stage that does not fit
 * gains 1 in each pass, and at 5 it is angry. PURE. */
#ifndef GRADPOOL_BENCH_EXPLORE_SITE_FIXED_H
#define GRADPOOL_BENCH_EXPLORE_SITE_FIXED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FIXED_ANGRY 5

enum fixed_rule {
    FIXED_FIFO,     /* in order of arrival; the first that does not fit holds up the others */
    FIXED_PRIORITY, /* FlexPS: angry jobs first, and free slots are kept for them */
    FIXED_GREEDY,   /* FlexPS: one pass, every job that fits */
};

struct fixed_job {
    uint32_t id, workers, anger;
    bool has_started;
};

struct fixed_queue {
    enum fixed_rule rule;
    uint32_t free;
    struct fixed_job *jobs; /* waiting, in order of arrival */
    size_t count, room;
};

void fixed_init(struct fixed_queue *queue, enum fixed_rule rule, uint32_t slots);
void fixed_fini(struct fixed_queue *queue);
/* -ENOSPC: more workers than `slots`; -ENOMEM. */
int fixed_submit(struct fixed_queue *queue, uint32_t id, uint32_t workers, uint32_t slots);
/* One pass. Returns the number of jobs that start; `ret_ids` has room for all waiting ones. */
size_t fixed_pass(struct fixed_queue *queue, uint32_t *ret_ids);

#endif
