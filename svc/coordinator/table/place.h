/* Sends shards of tables to their lanes, and handles the loss and the return of aggregators. */
#ifndef GRADPOOL_COORDINATOR_TABLE_PLACE_H
#define GRADPOOL_COORDINATOR_TABLE_PLACE_H

#include "svc/coordinator/job/table.h"

/* Sends PlaceRequests for all shards of the job that are PIECE_PLACED and whose lanes are
 * connected. Each request contains the shards of one table on one lane. */
void shards_tell(struct job *job);
/* Fails all tables with shards on the lost aggregator, and detaches all shards from its lanes.
 * Called before the job's shares of these lanes end. */
void shards_aggregator_lost(struct job *job, struct aggregator *a);
/* Compares the tables of a returning aggregator with the store (K9). Shards in both are ready, and
 * shards in the store alone are placed again. Lanes drop jobs that the coordinator does not
 * know. */
void shards_reconcile(struct aggregator *a, const WIRE(AggregatorJoin) * join);
/* Fails the tables of a job that was restored from the store without a lane for each shard. */
void shards_check_restored(struct job *job);
typedef bool (*shard_test_fn)(const struct job_shard *shard, const void *context);
/* Writes "0, 1, 2, 3 and 5 more": the shards for which `is_named` returns true. "": none. */
void shards_name(const struct job_table *table, shard_test_fn is_named, const void *context,
                 char *text, size_t text_bytes);
/* Returns whether all shards of the table are ready. */
bool shards_are_ready(const struct job_table *table);
/* Sends all failures of tables to a session that was resumed. */
void tables_send_failures(const struct session *to);

#endif
