/* Compares what jobs and tenants use with their limits (svc/wire/limit.h). */
#ifndef GRADPOOL_COORDINATOR_JOB_QUOTA_H
#define GRADPOOL_COORDINATOR_JOB_QUOTA_H

#include "svc/coordinator/job/job.h"
#include "svc/wire/limit.h"

/* Use, indexed by enum limit. Entries of limits with another owner (job or tenant) are 0. */
struct quota {
    uint64_t used[LIMITS];
};

void quota_of_job(const struct job *job, struct quota *ret_quota);
void quota_of_tenant(const struct service *s, const struct tenant *tenant, struct quota *ret_quota);

/* Sets `regions_most` and `lent_most` of every tenant from the last counts: the most regions on one
 * lane, and the most bytes on one aggregator. */
void quota_count_lent(struct service *s);
/* Returns the row of a reply with a limit and its use. */
WIRE(LimitUse) quota_row(const struct limits *limits, enum limit limit, uint64_t used);

/* Checks whether the tenant may start a job. -EDQUOT: `err` names the owner, the limit, the use and
 * the option. */
int quota_check_new_job(const struct service *s, const struct tenant *tenant, const char *name,
                        uint32_t workers, struct err *err);
/* Checks whether the job may keep these new tensors and their pieces, which its sums already
 * contain. */
int quota_check_declared(const struct job *job, struct tensor *const *tensors, size_t count,
                         struct err *err);
/* Checks whether one request may name that many tensors, before anything else is done for the
 * request. */
int quota_check_count(const struct tenant *tenant, size_t tensors, const char *job,
                      struct err *err);
/* Checks whether the job may have one more open request. */
int quota_check_request(const struct job *job, struct err *err);
/* Checks whether lanes have memory for these new tensors. -EDQUOT: beyond the limit of the job;
 * -ENOSPC: beyond the limit of the lane. */
int quota_check_lanes(struct job *job, struct tensor *const *tensors, size_t count,
                      struct err *err);

#endif
