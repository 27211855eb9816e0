/* Tables of a job for operators: terms, failure, and counts of all lanes. Shards do not move, so
 * the counts of the present lanes are those of the whole job. RULES.md: K15. */
#ifndef GRADPOOL_COORDINATOR_TABLE_VIEWS_H
#define GRADPOOL_COORDINATOR_TABLE_VIEWS_H

#include "svc/coordinator/job/table.h"

/* Adds a view of each table to the view of the job, in memory from `take`, which returns zeroed
 * memory or NULL. Returns false if memory is missing; the view is valid then, too. */
bool table_views_add(const struct job *job, void *(*take)(void *context, size_t bytes),
                     void *context, WIRE(JobView) * view);

#endif
