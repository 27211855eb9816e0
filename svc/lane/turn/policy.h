/* Which of the jobs that can use the core now gets the next chunk, for the files of this folder
 * only. */
#ifndef GRADPOOL_LANE_TURN_POLICY_H
#define GRADPOOL_LANE_TURN_POLICY_H

#include "svc/lane/types.h"

/* A job passed over so often in a row is next, however much it has to do (LANE_SHORTEST). */
#define POLICY_PASSES_MAX 64

/* "fair", "shortest", "fifo". -EINVAL: another. */
int lane_policy_find(const char *name, enum lane_policy *ret_policy);

void policy_init(struct lane *lane);
void policy_fini(struct lane *lane);
/* Takes it out of the line; NULL: nobody is there. */
struct lane_job *policy_next(struct lane *lane);
/* Something can be done for it now: it waits for its turn (policy.c). */
void job_wake(struct lane_job *job);
/* It has had its chunk and may want another: back into the line. */
void policy_put_back(struct lane_job *job);

/* Its tenant, among whose jobs it takes its turns; "": one without a key. Has no effect on a job
 * that has that tenant. */
void policy_set_tenant(struct lane_job *job, const char *name);
/* The job ends. */
void policy_forget(struct lane_job *job);
/* The job took so much of the lane's time. */
static inline void policy_pay(struct lane_job *job, uint64_t ns)
{
    job->turn.used_ns += ns;
    job->payer->turn.used_ns += ns;
}

#endif
