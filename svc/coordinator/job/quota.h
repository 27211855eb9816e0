/* Compares the use of jobs and tenants with their limits (svc/wire/limit.h). */
#ifndef GRADPOOL_COORDINATOR_JOB_QUOTA_H
#define GRADPOOL_COORDINATOR_JOB_QUOTA_H

#include "svc/coordinator/job/job.h"
#include "svc/wire/limit.h"

/* Use of limits, indexed by enum limit. In the use of a tenant the entries for limits of a job are
 * 0, and vice versa. */
struct quota {
    uint64_t used[LIMITS];
};

void quota_of_job(const struct job *job, struct quota *ret_quota);
void quota_of_tenant(const struct service *s, const struct tenant *tenant, struct quota *ret_quota);

/* Sets `regions_most` and `lent_most` of every tenant from the last measurements: the most memory
 * regions on one lane, and the most bytes on one aggregator. */
void quota_count_lent(struct service *s);
/* Returns a row for a reply: the limit and its use. */
WIRE(LimitUse) quota_row(const struct limits *limits, enum limit limit, uint64_t used);

/* Checks whether the tenant may start a job. Returns 0 or -EDQUOT; `err` names the owner, the
 * limit, the use and the option. */
int quota_check_new_job(const struct service *s, const struct tenant *tenant, const char *name,
                        uint32_t workers, struct err *err);
/* Checks the limits for new tensors and their pieces. The sums of the job already include the
 * tensors. */
int quota_check_declared(const struct job *job, struct tensor *const *tensors, size_t count,
                         struct err *err);
/* Checks whether the job may have another table of `shards` shards. A table counts as a tensor, and
 * a shard as a piece. The sums of the job do not include the table yet. */
int quota_check_table(const struct job *job, uint32_t shards, struct err *err);
/* Checks whether lanes may use `bytes` more for the rows of the job's tables. */
int quota_check_rows(const struct job *job, uint64_t bytes, struct err *err);
/* Returns how many more bytes of rows the limits of job and tenant allow. */
uint64_t quota_rows_room(const struct job *job);
/* Checks whether one request may name `count` tensors. Called before all other checks of the
 * request. */
int quota_check_count(const struct tenant *tenant, size_t tensors, const char *job,
                      struct err *err);
/* Checks whether the job may have one more open request. */
int quota_check_request(const struct job *job, struct err *err);
/* Checks whether lanes have memory for these new tensors. Returns 0, -EDQUOT if the job's limit is
 * exceeded, or -ENOSPC if a lane's limit is exceeded. */
int quota_check_lanes(struct job *job, struct tensor *const *tensors, size_t count,
                      struct err *err);

#endif
