/* Share: the pieces of a job on one lane, with the lane's counters for this job. */
#ifndef GRADPOOL_COORDINATOR_JOB_SHARE_H
#define GRADPOOL_COORDINATOR_JOB_SHARE_H

#include "svc/coordinator/aggregator/busy_time.h"
#include "svc/coordinator/job/table.h"
#include "svc/coordinator/job/tensor.h"

/* Finds or creates the job's share of the lane. Returns NULL if memory is missing. The pointer is
 * valid until the next call. */
struct share *jobs_share(struct job *job, struct lane *lane);
/* Returns the lane's counters for the job. NULL: the lane was not measured since the share began,
 * or its counters do not include the job. */
static inline const WIRE(JobUse) * jobs_use_of(const struct job *job, const struct share *share)
{
    bool is_current = share->lane->aggregator->measured_ns >= share->since_ns;
    return is_current ? stats_of_job(share->lane, job->id) : NULL;
}
/* Returns the share, or NULL if the lane has no piece of the job. */
const struct share *share_in_use(const struct job *job, const struct lane *lane);
/* Returns the part of share->lane_ns that is spent on tables. 0 while unknown: before lanes have
 * sent the times of pieces, the part is known only if the share has no pieces of tensors. */
uint64_t share_rows_ns(const struct job *job, const struct share *share);
/* Returns whether workers of the job may connect to the lane: the job has a share there, perhaps
 * without pieces yet. */
bool share_takes_workers(const struct job *job, const struct lane *lane);
/* Ends the job's share of the lane, and adds its counters to job->left. */
void jobs_forget_share(struct job *job, const struct lane *lane);
/* Ends the job's shares of all lanes of a lost aggregator. */
void jobs_forget_shares(struct job *job, const struct aggregator *a);

/* Attaches the piece to the lane (PIECE_PLACED). No message is sent. If memory is missing, the
 * piece stays stranded and is placed again after RETRY_NS. */
void piece_attach(struct tensor *tensor, struct piece *piece, struct lane *lane);
void piece_detach(struct tensor *tensor, struct piece *piece);
/* Attaches and detaches a shard of a table. A shard counts as a piece of its lane. */
void shard_attach(struct job_table *table, struct job_shard *shard, struct lane *lane);
void shard_detach(struct job_table *table, struct job_shard *shard);
/* Returns the bytes of a shard, computed from the number of rows in the user's hint. Without a
 * hint, returns the bytes of a small shard. */
uint64_t shard_bytes(const struct job_table *table);

#endif
