/* The last measurements of each aggregator, with busy time corrected to CPU time (RULES.md:
 * K15). */
#ifndef GRADPOOL_COORDINATOR_AGGREGATOR_BUSY_TIME_H
#define GRADPOOL_COORDINATOR_AGGREGATOR_BUSY_TIME_H

#include "svc/coordinator/aggregator/call.h"

/* Requests measurements of all jobs, and of each piece of job `job_id` (0: of no piece). Returns
 * the errors of call_send(). */
int stats_request(struct aggregator *a, uint32_t job_id, uint64_t deadline_ns, call_done_fn done,
                  const void *data, size_t data_bytes);
/* Stores a copy of a StatsReply in `a->stats`, with busy time corrected to CPU time (K15). Returns
 * false if the reply is dropped: memory is missing, or the reply refers to earlier rows that are
 * not stored here. */
bool stats_keep(struct aggregator *a, const envelope *reply);
void stats_forget(struct aggregator *a);
/* Returns the last measurement of a lane, or NULL. Valid until the next stats_keep(). */
const WIRE(LaneUse) * stats_of_lane(const struct lane *lane);
const WIRE(JobUse) * stats_of_job(const struct lane *lane, uint32_t job_id);

#endif
