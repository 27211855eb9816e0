/* A claim reserves all pieces of a job for one operation. The lanes have released the pieces, or
 * are about to release them. Other operations on the job wait until the claim ends. */
#ifndef GRADPOOL_COORDINATOR_JOB_CLAIM_H
#define GRADPOOL_COORDINATOR_JOB_CLAIM_H

#include "svc/coordinator/job/job.h"

enum claim {
    CLAIM_REGROUP = 1,  /* ranks join or leave (membership/regroup.c) */
    CLAIM_SNAPSHOT = 2, /* a snapshot of all pieces at the same iteration (snapshot/align.c) */
};

static inline void job_claim(struct job *job, enum claim claim) { job->ranks->claims |= claim; }
static inline void job_unclaim(struct job *job, enum claim claim)
{
    job->ranks->claims &= ~(uint32_t)claim;
}
static inline bool job_has_claim(const struct job *job, enum claim claim)
{
    return job->ranks->claims & claim;
}

#endif
