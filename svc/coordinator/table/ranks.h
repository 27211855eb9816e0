/* Tells lanes with shards of tables which ranks of an elastic job are gone. A lane counts all ranks
 * as members of a new table, and sees only the end of a connection. Without this news a rank that
 * was lost before its first connection would hold the minimum of the clocks for ever. */
#ifndef GRADPOOL_COORDINATOR_TABLE_RANKS_H
#define GRADPOOL_COORDINATOR_TABLE_RANKS_H

#include "svc/coordinator/job/table.h"

/* Sends the ranks that are no members of the job to every connected lane with its shards. Called
 * after a rank has left or was lost. No effect in a job that is not elastic. */
void shards_forget_ranks(struct job *job);
/* The same for one lane, after it has received shards, or after its aggregator is back. */
void shards_forget_ranks_on(struct job *job, struct lane *lane);

#endif
