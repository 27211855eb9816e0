/* Copies the rows of keys, or the initial values of absent keys. Creates no row. */
#ifndef GRADPOOL_LANE_ROWS_GATHER_H
#define GRADPOOL_LANE_ROWS_GATHER_H

#include "svc/lane/rows/types.h"

#define GATHER_KEYS 256u /* keys that are copied at once */

/* Writes the rows of the mixed keys, which the caller has copied from the worker, in the dtype of
 * requests. -EBADMSG: a key belongs to another shard; rows before this key may be written. */
int gather_rows(const struct lane_table *table, const struct lane_shard *shard,
                const uint64_t *keys, uint32_t count, char *ret_rows);

#endif
