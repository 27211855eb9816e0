/* The figures that aggregators have told last. README: K15. */
#ifndef GRADPOOL_COORDINATOR_AGGREGATOR_BUSY_TIME_H
#define GRADPOOL_COORDINATOR_AGGREGATOR_BUSY_TIME_H

#include "svc/coordinator/aggregator/call.h"

/* Asks for figures, with the pieces of one job (0: nobody's). As call_send(), which it ends in. */
int stats_request(struct aggregator *a, uint32_t job_id, uint64_t deadline_ns, call_done_fn done,
                  const void *data, size_t data_bytes);
/* Keeps a copy of a StatsReply in `a->stats`, busy times as time with the core (K15). False: it is
 * as if none had come. */
bool stats_keep(struct aggregator *a, const envelope *reply);
void stats_forget(struct aggregator *a);
/* The last known figures; NULL: none. Good until the next stats_keep(). */
const WIRE(LaneUse) * stats_of_lane(const struct lane *lane);
const WIRE(JobUse) * stats_of_job(const struct lane *lane, uint32_t job_id);

#endif
