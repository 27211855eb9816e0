/* State of a table without its rows, as the payload of a LOG_STATE block: progress, settings, and
 * sequences and clocks of the ranks. */
#ifndef GRADPOOL_LANE_ROWS_LOG_ROW_STATE_H
#define GRADPOOL_LANE_ROWS_LOG_ROW_STATE_H

#include "svc/lane/rows/types.h"
#include "svc/lane/table/log.h"

/* Returns the largest length of the state of the table. */
size_t row_state_bytes_max(const struct lane_table *table);
/* Writes the state. `progress`: the present progress, as in a block of rows. Returns the length. */
size_t row_state_write(const struct lane_table *table, const struct log_head *progress,
                       void *ret_payload);
/* Stores the state in a copy of the table. -EBADMSG: the payload is not a state of this table;
 * nothing has changed then. */
int row_state_read(struct lane_table *table, const void *payload, size_t bytes);
/* Stores the progress of a block in a copy of the table. -EBADMSG: a rank or shard does not
 * exist. */
int row_state_advance(struct lane_table *table, const struct log_head *head);

#endif
