/* Measurements of lanes and jobs: requests to aggregators, stored replies, and the samples that are
 * computed from the replies for each job. RULES.md: K15. */
#ifndef GRADPOOL_COORDINATOR_MEASURE_MEASURE_H
#define GRADPOOL_COORDINATOR_MEASURE_MEASURE_H

#include "svc/coordinator/job/job.h"

#define MEASURE_NS NS_PER_S            /* time between two measurements while jobs train */
#define EXPLORE_LOOK_NS (NS_PER_S / 4) /* with --explore: four measurements in each window */
/* largest factor by which the time between two measurements grows while no job trains */
#define MEASURE_IDLE_TIMES 8

struct service;

int measuring_create(struct service *s);
void measuring_destroy(struct service *s);
/* Returns whether no job has trained during the last measurements. */
bool measuring_is_idle(const struct service *s);
/* Schedules a measurement soon, because a job may be about to train. */
void measuring_wake(struct service *s);

/* Requests a measurement of the aggregator and stores the reply. The reply has the lane time of
 * each piece of job `job_id` (0: of no piece). */
void stats_ask(struct aggregator *a, uint32_t job_id);

/* Returns whether no measurement is scheduled. */
bool measuring_is_asleep(const struct service *s);

#endif
