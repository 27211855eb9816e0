/* Allowances: the memory that lanes may use for the rows of a job's tables. A lane asks for more in
 * time, so that new rows need no request. The limits of job and tenant apply to the sums of
 * allowances. RULES.md: K145. */
#ifndef GRADPOOL_COORDINATOR_TABLE_ALLOW_H
#define GRADPOOL_COORDINATOR_TABLE_ALLOW_H

#include "svc/coordinator/job/table.h"

/* Checks whether the limits of job and tenant have room for a new table: for its shards without
 * rows, or for the rows that the user expects. Returns 0, or -EDQUOT with a text. */
int allow_check_table(const struct job_table *table, struct err *err);
/* Gives the lane memory for its shards without rows, and for the first rows. Has no effect for
 * shards that were counted before. The caller sends the allowance with the shards. Returns 0 or
 * -ENOMEM. */
int allow_place(struct job *job, const struct lane *lane);
/* Like allow_place(), for copies of `shards` shards on the lane. */
int allow_place_copy(struct job *job, const struct lane *lane, uint32_t shards);
/* Handles a RowsWanted of a lane. */
void allow_handle(struct peer *p, const envelope *message);
/* Returns whether a push on this lane waits for memory, because a limit is reached. `ret_err`: the
 * limit. */
bool allow_is_refused(const struct job *job, const struct lane *lane, struct err *ret_err);
/* Raises the allowances of lanes with waiting pushes, as far as the limits have room now. */
void allow_retry(struct service *s);
/* Restores an allowance from the list of a returning aggregator. */
void allow_restore(struct job *job, const struct lane *lane, uint64_t bytes);
/* Ends the allowances of the lanes of a lost aggregator. */
void allow_aggregator_lost(struct job *job, const struct aggregator *a);

#endif
