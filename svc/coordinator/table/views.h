/* Tables of a job for operators: terms, failure, and counts of all lanes. Shards do not move, so
 * the counts of the present lanes are those of the whole job. RULES.md: K15. */
#ifndef GRADPOOL_COORDINATOR_TABLE_VIEWS_H
#define GRADPOOL_COORDINATOR_TABLE_VIEWS_H

#include "svc/channel/channel.h"
#include "svc/coordinator/job/table.h"

/* Bytes of tables in one message, which leave room for jobs and ranks in a frame. */
#define TABLE_VIEWS_BYTES_MAX (CHANNEL_FRAME_BYTES_MAX / 2)

/* Adds a view of each table to the view of the job, in memory from `take`, which returns zeroed
 * memory or NULL. Returns false if memory is missing; the view is valid then, too. `bytes_left`:
 * bytes for tables in the message, which the call reduces; at 0 the view has the number of the
 * tables that were left out. */
bool table_views_add(const struct job *job, void *(*take)(void *context, size_t bytes),
                     void *context, size_t *bytes_left, WIRE(JobView) * view);

#endif
