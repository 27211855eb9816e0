/* Sends to lanes with shards of tables the ranks of an elastic job that are gone. A lane counts all
 * ranks as members of a new table, and notices only the end of a connection. Without this list, a
 * rank that was lost before its first connection would stop the smallest clock forever. */
#ifndef GRADPOOL_COORDINATOR_TABLE_RANKS_H
#define GRADPOOL_COORDINATOR_TABLE_RANKS_H

#include "svc/coordinator/job/table.h"

/* Sends to every connected lane with shards of the job the ranks that are not members of the job.
 * Called after a rank has left or was lost. Has no effect in a job that is not elastic. */
void shards_forget_ranks(struct job *job);
/* Like shards_forget_ranks(), but for one lane, after the lane has received shards, or after its
 * aggregator is back. */
void shards_forget_ranks_on(struct job *job, struct lane *lane);

#endif
