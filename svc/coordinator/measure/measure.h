/* Measurements of lanes and jobs: requests them, stores the replies, and computes samples for jobs.
 * RULES.md: K15. */
#ifndef GRADPOOL_COORDINATOR_MEASURE_MEASURE_H
#define GRADPOOL_COORDINATOR_MEASURE_MEASURE_H

#include "svc/coordinator/job/job.h"

#define MEASURE_NS NS_PER_S            /* time between two measurements while jobs train */
#define EXPLORE_LOOK_NS (NS_PER_S / 4) /* with --explore: four measurements in each window */
#define MEASURE_IDLE_TIMES 8 /* while no job trains, the pause grows up to this multiple */

struct service;

/* Creates the state. Returns 0 or -ENOMEM. */
int measuring_create(struct service *s);
void measuring_destroy(struct service *s);
/* Returns whether no job has trained in the last measurements. */
bool measuring_is_idle(const struct service *s);
/* Schedules a measurement soon, because a job may begin to train. */
void measuring_wake(struct service *s);

/* Requests a measurement of the aggregator, with the lane time of each piece of one job (0: none),
 * and stores the reply. */
void stats_ask(struct aggregator *a, uint32_t job_id);

/* Returns whether no measurement is scheduled. */
bool measuring_is_asleep(const struct service *s);

#endif
