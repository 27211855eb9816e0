/* Order in which jobs use the core. Tenants take turns, and within a tenant the jobs of this tenant
 * take turns. RULES.md: A20, A77. */
#ifndef GRADPOOL_LANE_TURN_POLICY_H
#define GRADPOOL_LANE_TURN_POLICY_H

#include "svc/lane/types.h"

/* LANE_SHORTEST: a job that was passed over this many times in a row is served next. */
#define POLICY_PASSES_MAX 64

/* Finds a policy by its name: "fair", "shortest" or "fifo". Returns 0, or -EINVAL for another
 * name. */
int lane_policy_find(const char *name, enum lane_policy *ret_policy);

void policy_init(struct lane *lane);
void policy_fini(struct lane *lane);
/* Removes and returns the next job, or returns NULL if no job waits. */
struct lane_job *policy_next(struct lane *lane);
/* Queues a job that has work, unless it is queued already. */
void job_wake(struct lane_job *job);
/* Queues the job again after its chunk, because it may have more work. */
void policy_put_back(struct lane_job *job);

/* Sets the tenant of the job; "": jobs without a key. Does nothing if the job has this tenant
 * already. */
void policy_set_tenant(struct lane_job *job, const char *name);
/* Removes a job that is ending from its tenant and its queue. */
void policy_forget(struct lane_job *job);
/* Adds `ns` of the lane's time to the use of the job and its tenant. */
static inline void policy_pay(struct lane_job *job, uint64_t ns)
{
    job->turn.used_ns += ns;
    job->payer->turn.used_ns += ns;
}

#endif
