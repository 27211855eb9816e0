/* Shares of lanes: a job's pieces on each, and what the lane has counted for it. */
#ifndef GRADPOOL_COORDINATOR_JOB_SHARE_H
#define GRADPOOL_COORDINATOR_JOB_SHARE_H

#include "svc/coordinator/job/tensor.h"

/* The job's share of the lane, made if there is none; NULL: no memory. Valid until the next. */
struct share *jobs_share(struct job *job, struct lane *lane);
/* NULL: the lane was not asked since it has the share, or knows nothing of the job. */
const WIRE(JobUse) * jobs_use_of(const struct job *job, const struct share *share);
/* NULL: no piece of the job is on the lane. */
const struct share *share_in_use(const struct job *job, const struct lane *lane);
/* Whether workers of the job may connect to the lane: pieces are there, or on their way. */
bool share_takes_workers(const struct job *job, const struct lane *lane);
/* Nothing of the job is on the lane any more; what it has counted is added to what was left. */
void jobs_forget_share(struct job *job, const struct lane *lane);
/* The same of all lanes of an aggregator that is lost. */
void jobs_forget_shares(struct job *job, const struct aggregator *a);

/* The piece lies on the lane from now on, which does not know yet. Without memory it stays
 * stranded, and that is tried again. */
void piece_attach(struct tensor *tensor, struct piece *piece, struct lane *lane);
void piece_detach(struct tensor *tensor, struct piece *piece);

#endif
