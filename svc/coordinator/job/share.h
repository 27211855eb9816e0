/* Shares of lanes: a job's pieces on each, and what the lane has counted for it. */
#ifndef GRADPOOL_COORDINATOR_JOB_SHARE_H
#define GRADPOOL_COORDINATOR_JOB_SHARE_H

#include "svc/coordinator/job/tensor.h"

/* The job's share of the lane, created if missing; NULL: no memory. The pointer is valid until the
 * next call. */
struct share *jobs_share(struct job *job, struct lane *lane);
/* The lane's counters for the job; NULL: no figures since the share began, or the lane does not
 * know the job. */
const WIRE(JobUse) * jobs_use_of(const struct job *job, const struct share *share);
/* NULL: the lane has no piece of the job. */
const struct share *share_in_use(const struct job *job, const struct lane *lane);
/* Whether workers of the job may connect to the lane: it has a share, even one without pieces
 * yet. */
bool share_takes_workers(const struct job *job, const struct lane *lane);
/* Ends the job's share of the lane; its counters are added to job->left. */
void jobs_forget_share(struct job *job, const struct lane *lane);
/* Ends the job's shares of all lanes of a lost aggregator. */
void jobs_forget_shares(struct job *job, const struct aggregator *a);

/* Places the piece on the lane (PIECE_PLACED; the lane gets no message yet). Without memory the
 * piece stays stranded and is placed again after RETRY_NS. */
void piece_attach(struct tensor *tensor, struct piece *piece, struct lane *lane);
void piece_detach(struct tensor *tensor, struct piece *piece);

#endif
