/* Tables of keyed rows: reads them from a message. */
#ifndef GRADPOOL_OPS_SNAPSHOT_ROW_TABLES_H
#define GRADPOOL_OPS_SNAPSHOT_ROW_TABLES_H

#include "svc/channel/channel.h"
#include "svc/view/view.h"

/* Reads the tables of a job; NULL: none. Texts point to the message. A table without terms is left
 * out. The caller frees the result with free(). Returns 0 or -ENOMEM. */
int row_tables_view(const Gradpool__Wire__JobView *job, struct view_tables **ret_tables);

/* Returns the difference between the clocks of the fastest and the slowest rank; 0: all ranks have
 * the same clock. */
static inline uint64_t row_table_behind(const struct view_table *table)
{
    return table->is_counted ? table->largest_clock - table->minimum_clock : 0;
}

#endif
