/* Sums of a batch: the gradients of each of its keys, in the order of (rank, sequence). If all
 * workers' memory is mapped, gradients are read in place, key by key. Otherwise the batch is summed
 * part by part, with one read for all rows of a part in the batch. In both cases the additions of a
 * key have the same order, so the sums have the same bits. RULES.md: A91, A99. */
#ifndef GRADPOOL_LANE_ROWS_APPLY_SUMS_H
#define GRADPOOL_LANE_ROWS_APPLY_SUMS_H

#include "svc/lane/rows/types.h"

/* Computes the sums of the keys from apply->at to `end` in apply->sums. -EAGAIN: rows have not
 * arrived yet, so the call has to be repeated. -EFAULT: a worker was evicted, or its pages are gone
 * and its connection is about to end; no row may change. */
int sums_make(struct row_apply *apply, uint32_t end);
/* Counts a row that was not updated, in the answers of the pushes whose gradients are not finite.
 * If all gradients are finite but their sum is not, the answers of all pushes with this key count
 * the row. Called for ascending keys after sums_make(). */
void sums_count_skipped(struct row_apply *apply, uint32_t key);
/* Ends the batch after its rows were updated. */
void sums_end(struct row_apply *apply);
/* Drops the batch. The rows of the batch are not counted in any answer. */
void sums_abort(struct row_apply *apply);

#endif
