/* The parts of the shard that the lane updates now. A part is the share of a push in this shard,
 * with a window of copied keys. */
#ifndef GRADPOOL_LANE_ROWS_APPLY_PARTS_H
#define GRADPOOL_LANE_ROWS_APPLY_PARTS_H

#include "svc/lane/rows/table.h"

/* Returns the oldest push; NULL: none. With SSP and ASP, only this push is applied. */
static inline struct row_request *parts_first_push(const struct lane_table *table)
{
    struct list *node = list_first(&table->queues->pushes);
    return node ? list_entry(node, struct row_request, link) : NULL;
}

/* Returns whether the push is applied now. With BSP each push of the clock is applied now,
 * otherwise only the oldest push. */
static inline bool parts_is_due(const struct lane_table *table, const struct row_request *push)
{
    return table_is_bsp(table) ? push->record->clock == table->clock
                               : push == parts_first_push(table);
}

/* Sets the parts of a shard, in the order of (rank, sequence): the stripe requires this order.
 * -EAGAIN: entries of a directory, or keys and rows that are read ahead, have not arrived yet.
 * After other errors a worker was evicted. */
int parts_collect(struct row_apply *apply, struct lane_table *table);
/* Copies the first keys of all parts, and adds the parts to the cleared stripe. -EAGAIN: keys have
 * not arrived yet. After other errors a worker was evicted. */
int parts_open(struct row_apply *apply);
/* Copies further keys of the parts whose windows the stripe has used up. Errors: as
 * parts_open(). */
int parts_show(struct row_apply *apply);
/* Removes the parts of a rank. Returns their number. */
uint32_t parts_drop_rank(struct row_apply *apply, uint32_t rank);

static inline struct lane_shard *apply_shard(const struct row_apply *apply)
{
    return apply->table->shards[apply->table->shard];
}

#endif
