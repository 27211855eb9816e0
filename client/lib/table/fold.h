/* Copies rows of one request between two orders: the caller's order, with duplicates, and the order
 * of distinct mixed keys. */
#ifndef GRADPOOL_CLIENT_TABLE_FOLD_H
#define GRADPOOL_CLIENT_TABLE_FOLD_H

#include "client/lib/table/keys.h"
#include "svc/reduce/reduce.h"

/* Sums the gradients of each key, in order of position, so that equal input gives equal bits.
 *
 *   gradients  rows of `dim` elements (1 to 4096) in the order of the caller's keys
 *   ret_rows   one row for each distinct key, in order; no overlap with `gradients`
 *   dtype      of gradients and rows: f32, f16 or bf16; sums are in f32 and rounded once */
void table_fold(const struct table_keys *keys, enum reduce_dtype dtype, uint32_t dim,
                const void *gradients, void *ret_rows);

/* Copies the row of each distinct key to every position that has the key. `rows` has one row of
 * `row_bytes` for each distinct key, in order; `ret_rows` has one for each key of the caller. */
void table_spread(const struct table_keys *keys, size_t row_bytes, const void *rows,
                  void *ret_rows);

#endif
