/* Figures of lanes and jobs: requests, kept replies, and the samples that jobs get from them.
 * RULES.md: K15. */
#ifndef GRADPOOL_COORDINATOR_MEASURE_MEASURE_H
#define GRADPOOL_COORDINATOR_MEASURE_MEASURE_H

#include "svc/coordinator/job/job.h"

#define MEASURE_NS NS_PER_S            /* time between two looks while jobs train */
#define EXPLORE_LOOK_NS (NS_PER_S / 4) /* with --explore: four looks a window */
#define MEASURE_IDLE_TIMES 8           /* factor of the longest pause while no job trains */

struct service;

/* -ENOMEM. */
int measuring_create(struct service *s);
void measuring_destroy(struct service *s);
/* Whether no job has trained in the last looks. */
bool measuring_is_idle(const struct service *s);
/* Looks again soon: a job may begin to train. */
void measuring_wake(struct service *s);

/* Requests figures of the aggregator, with the lane time of each piece of one job (0: of no job);
 * keeps them when they arrive. */
void stats_ask(struct aggregator *a, uint32_t job_id);

/* Whether no look is planned. */
bool measuring_is_asleep(const struct service *s);

#endif
