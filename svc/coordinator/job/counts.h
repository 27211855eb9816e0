/* Counts over the rounds of a job with backup workers. The counts come from the lanes that lead the
 * rounds now, and from the lanes that led earlier rounds. RULES.md: K15. */
#ifndef GRADPOOL_COORDINATOR_JOB_COUNTS_H
#define GRADPOOL_COORDINATOR_JOB_COUNTS_H

#include "svc/coordinator/job/job.h"

struct job_counts;

void counts_destroy(struct job *job);
/* Adds the last counts of a lane that no longer serves the job (NULL: the lane had none). If memory
 * is missing, these counts are lost. */
void counts_leave(struct job *job, const WIRE(RoundCounts) * counts);
/* Sums the counts of all lanes into `ret_sum`, which the caller has initialized. The function
 * `take` allocates the arrays: it returns zeroed memory, or NULL. Returns false if no lane has
 * counts, or memory is missing. */
bool counts_sum(const struct job *job, void *(*take)(void *context, size_t bytes), void *context,
                WIRE(RoundCounts) * ret_sum);
/* Logs a warning, once, for each rank that was dropped in half of the last COUNTS_WINDOW rounds or
 * more. The service calls this function after each measurement. */
void counts_look(struct job *job);

#define COUNTS_WINDOW 1000

#endif
