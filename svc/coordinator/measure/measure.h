/* Figures of lanes and jobs: asked for, kept, and what is known of a job from them. README: K15. */
#ifndef GRADPOOL_COORDINATOR_MEASURE_MEASURE_H
#define GRADPOOL_COORDINATOR_MEASURE_MEASURE_H

#include "svc/coordinator/job/job.h"

#define MEASURE_NS NS_PER_S            /* between two looks at what trains */
#define EXPLORE_LOOK_NS (NS_PER_S / 4) /* the same with --explore: a window is four at least */
#define MEASURE_IDLE_TIMES 8           /* as long, at most, when nothing does */

struct service;

/* -ENOMEM. */
int measuring_create(struct service *s);
void measuring_destroy(struct service *s);
/* Nothing has trained in the last looks. */
bool measuring_is_idle(const struct service *s);
/* There may be something to measure from now on. */
void measuring_wake(struct service *s);

/* Asks it for its figures, with the pieces of one job (0: nobody's); they are kept when they come.
 */
void stats_ask(struct aggregator *a, uint32_t job_id);

/* No look is planned. */
bool measuring_is_asleep(const struct service *s);

#endif
