/* Figures of lanes and jobs: asked for, kept, and what is known of a job from them. README: K15. */
#ifndef GRADPOOL_COORDINATOR_MEASURE_MEASURE_H
#define GRADPOOL_COORDINATOR_MEASURE_MEASURE_H

#include "svc/coordinator/job/job.h"

#define MEASURE_NS NS_PER_S            /* between two looks at what trains */
#define EXPLORE_LOOK_NS (NS_PER_S / 4) /* the same with --explore: a window is four at least */
#define MEASURE_IDLE_TIMES 8           /* as long, at most, when nothing does */

struct service;

void measuring_init(struct service *s);
/* Nothing has trained in the last looks. */
bool measuring_is_idle(const struct service *s);
/* There may be something to measure from now on. */
void measuring_wake(struct service *s);

/* Asks it for its figures, with the pieces of one job (0: nobody's); they are kept when they come.
 */
void stats_ask(struct aggregator *a, uint32_t job_id);

/* --- busy_time.c --- */

/* Asks for figures, with the pieces of one job (0: nobody's). As call_send(), which it ends in. */
int stats_request(struct aggregator *a, uint32_t job_id, uint64_t deadline_ns, call_done_fn done,
                  void *data);
/* Keeps a copy of a StatsReply in `a->stats`, busy times as time with the core (K15). False: it is
 * as if none had come. */
bool stats_keep(struct aggregator *a, const envelope *reply);
void stats_forget(struct aggregator *a);
/* The last known figures; NULL: none. Good until the next stats_keep(). */
const WIRE(LaneUse) * stats_of_lane(const struct lane *lane);
const WIRE(JobUse) * stats_of_job(const struct lane *lane, uint32_t job_id);

#endif
