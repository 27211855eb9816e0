/* What jobs and tenants use, held against the named maxima (svc/wire/limit.h). */
#ifndef GRADPOOL_COORDINATOR_JOB_QUOTA_H
#define GRADPOOL_COORDINATOR_JOB_QUOTA_H

#include "svc/coordinator/job/job.h"
#include "svc/wire/limit.h"

/* By enum limit; what is not of a job (or a tenant) is 0. */
struct quota {
    uint64_t used[LIMITS];
};

void quota_of_job(const struct job *job, struct quota *ret_quota);
void quota_of_tenant(const struct service *s, const struct tenant *tenant, struct quota *ret_quota);

/* Fills what tenants lend, where each lends most, as lanes counted last. */
void quota_count_lent(struct service *s);
/* A row of a reply: a limit, and how much of it is used. */
WIRE(LimitUse) quota_row(const struct limits *limits, enum limit limit, uint64_t used);

/* -EDQUOT, with a text that says who, what and what to do. */
int quota_check_new_job(const struct service *s, const struct tenant *tenant, const char *name,
                        uint32_t workers, struct err *err);
/* Whether the job may keep these new tensors, which it holds already, and their pieces. */
int quota_check_declared(const struct job *job, struct tensor *const *tensors, size_t count,
                         struct err *err);
/* Whether one request may name so many tensors, before it is worked on. */
int quota_check_count(const struct tenant *tenant, size_t tensors, const char *job,
                      struct err *err);
/* One more request that is answered later. */
int quota_check_request(const struct job *job, struct err *err);
/* A lane would hold more than it may, with what these new tensors bring: -EDQUOT for the job,
 * -ENOSPC for all jobs. */
int quota_check_lanes(struct job *job, struct tensor *const *tensors, size_t count,
                      struct err *err);

#endif
