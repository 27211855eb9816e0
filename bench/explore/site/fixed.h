/* Queues of jobs with a fixed number of workers: the baselines of `explore --simulate`. The rules
 * of FlexPS follow its public source, as far as they apply to one pool of slots. The anger of a
 * stage that does not fit grows by 1 in each pass, and from 5 on the stage is angry. PURE. */
#ifndef GRADPOOL_BENCH_EXPLORE_SITE_FIXED_H
#define GRADPOOL_BENCH_EXPLORE_SITE_FIXED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FIXED_ANGRY 5

enum fixed_rule {
    FIXED_FIFO,     /* jobs start in order of arrival; a job that does not fit blocks all later
                     * jobs */
    FIXED_PRIORITY, /* FlexPS: angry jobs start first, and free slots are reserved for angry jobs */
    FIXED_GREEDY,   /* FlexPS: each pass starts every job that fits */
};

struct fixed_job {
    uint32_t id, workers, anger;
    bool has_started;
};

struct fixed_queue {
    enum fixed_rule rule;
    uint32_t free;
    struct fixed_job *jobs; /* waiting jobs, in order of arrival */
    size_t count, room;
};

void fixed_init(struct fixed_queue *queue, enum fixed_rule rule, uint32_t slots);
void fixed_fini(struct fixed_queue *queue);
/* Adds a job. -ENOSPC: more workers than `slots`; -ENOMEM. */
int fixed_submit(struct fixed_queue *queue, uint32_t id, uint32_t workers, uint32_t slots);
/* Does one pass over the queue. Returns the number of started jobs. `ret_ids` has room for the ids
 * of all waiting jobs. */
size_t fixed_pass(struct fixed_queue *queue, uint32_t *ret_ids);

#endif
