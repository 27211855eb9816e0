/* Order of the jobs that can use the core, chunk by chunk, by tenant first. RULES.md: A20, A77. */
#ifndef GRADPOOL_LANE_TURN_POLICY_H
#define GRADPOOL_LANE_TURN_POLICY_H

#include "svc/lane/types.h"

/* LANE_SHORTEST: a job passed over this often in a row is next, whatever its bytes. */
#define POLICY_PASSES_MAX 64

/* `name`: "fair", "shortest" or "fifo". -EINVAL: another name. */
int lane_policy_find(const char *name, enum lane_policy *ret_policy);

void policy_init(struct lane *lane);
void policy_fini(struct lane *lane);
/* Removes the next job from the line and returns it; NULL: no job waits. */
struct lane_job *policy_next(struct lane *lane);
/* The job has work now: puts it into the line, unless it is there. */
void job_wake(struct lane_job *job);
/* The job has had its chunk and may have more: back into the line. */
void policy_put_back(struct lane_job *job);

/* Sets the tenant among whose jobs this job takes turns; "": jobs without a key. No effect if the
 * job has this tenant already. */
void policy_set_tenant(struct lane_job *job, const char *name);
/* Removes a job that ends from its tenant and its line. */
void policy_forget(struct lane_job *job);
/* Counts `ns` of the lane's time for the job and its tenant. */
static inline void policy_pay(struct lane_job *job, uint64_t ns)
{
    job->turn.used_ns += ns;
    job->payer->turn.used_ns += ns;
}

#endif
