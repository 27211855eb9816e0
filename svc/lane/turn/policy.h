/* Order in which jobs use the core, chunk by chunk; tenants take turns first. RULES.md: A20,
 * A77. */
#ifndef GRADPOOL_LANE_TURN_POLICY_H
#define GRADPOOL_LANE_TURN_POLICY_H

#include "svc/lane/types.h"

/* LANE_SHORTEST: a job that was skipped this often in a row is next, whatever its bytes. */
#define POLICY_PASSES_MAX 64

/* Finds a policy by its name: "fair", "shortest" or "fifo". -EINVAL: another name. */
int lane_policy_find(const char *name, enum lane_policy *ret_policy);

void policy_init(struct lane *lane);
void policy_fini(struct lane *lane);
/* Removes the next job from the line, and returns it. NULL: no job waits. */
struct lane_job *policy_next(struct lane *lane);
/* Adds the job, which has work now, to the line, unless it is there already. */
void job_wake(struct lane_job *job);
/* Adds the job to the line again after its chunk, because it may have more work. */
void policy_put_back(struct lane_job *job);

/* Sets the tenant of the job, among whose jobs it takes turns; "": jobs without a key. Does nothing
 * if the job has this tenant already. */
void policy_set_tenant(struct lane_job *job, const char *name);
/* Removes a job that is ending from its tenant and its line. */
void policy_forget(struct lane_job *job);
/* Counts `ns` of the lane's time for the job and its tenant. */
static inline void policy_pay(struct lane_job *job, uint64_t ns)
{
    job->turn.used_ns += ns;
    job->payer->turn.used_ns += ns;
}

#endif
