/* Reads the shares of pushes over a network before their shards are applied: the keys and gradients
 * of as many shards as fit are posted together, so that a clock of many small shards costs one trip
 * through the network. RULES.md: A103. */
#ifndef GRADPOOL_LANE_ROWS_APPLY_AHEAD_H
#define GRADPOOL_LANE_ROWS_APPLY_AHEAD_H

#include "svc/lane/rows/types.h"

/* Posts reads for the pushes that are due in the next shard of the table, and in the shards after
 * this shard, unless these reads are posted already. The directory entries of these pushes for the
 * next shard must be copied already. -EAGAIN: reads of a dropped share are not complete, so the
 * call has to be repeated. After other errors a worker was evicted. */
int ahead_read(struct row_network *network, const struct lane_table *table);
/* Finds the keys and rows of an entry. The caller searches parts in the order of the pushes, and
 * sets `*at` to 0 before the first part of a shard. `ret_keys`: NULL if the entry was not read
 * ahead. -EAGAIN: the read of the bytes is not complete. */
int ahead_find(const struct row_network *network, const struct lane_table *table,
               const struct row_request *push, const struct row_span *span, uint32_t *at,
               const uint64_t **ret_keys, const char **ret_rows);
/* Ends the reads for a clock or push of the table that has ended, because its request structs are
 * used again. */
void ahead_end(const struct lane_table *table);
/* Ends all reads if one of them reads memory of the rank. The bytes of entries that were found stay
 * valid until ahead_read() begins other reads. */
void ahead_forget(struct lane_tables *tables, uint32_t rank);

#endif
