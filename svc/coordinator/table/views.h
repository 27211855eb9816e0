/* Views of the tables of a job for operators: terms, failure, and counts of all lanes. Shards do
 * not move, so a sum over the present lanes is the count of the whole job. RULES.md: K15. */
#ifndef GRADPOOL_COORDINATOR_TABLE_VIEWS_H
#define GRADPOOL_COORDINATOR_TABLE_VIEWS_H

#include "svc/channel/channel.h"
#include "svc/coordinator/job/table.h"

/* Maximum bytes of tables in one message. The rest of the message is for jobs and ranks. */
#define TABLE_VIEWS_BYTES_MAX (CHANNEL_FRAME_BYTES_MAX / 2)

/* Adds a view of each table to the view of the job. `take` allocates the memory: it returns zeroed
 * memory, or NULL. Returns false if memory is missing; the view is then incomplete, but valid.
 * `bytes_left`: bytes for tables in the message, reduced by this call. If it reaches 0, the view
 * contains the number of tables that were left out. */
bool table_views_add(const struct job *job, void *(*take)(void *context, size_t bytes),
                     void *context, size_t *bytes_left, WIRE(JobView) * view);

#endif
