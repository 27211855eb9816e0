/* Sums of a batch: the gradients of each of its keys, in the order of (rank, sequence). If all
 * workers' memory is mapped, gradients are read in place, key by key. Otherwise the batch is summed
 * part by part, each of whose rows of the batch are one read: the same additions in the same order,
 * so the bits are the same. RULES.md: A91, A99. */
#ifndef GRADPOOL_LANE_ROWS_APPLY_SUMS_H
#define GRADPOOL_LANE_ROWS_APPLY_SUMS_H

#include "svc/lane/rows/types.h"

/* Computes the sums of the keys from apply->at to `end` in apply->sums. -EAGAIN: rows are on their
 * way, so the call has to be repeated. -EFAULT: a worker was evicted, or its pages are gone and its
 * connection is about to end; no row may change. */
int sums_make(struct row_apply *apply, uint32_t end);
/* Counts a row that was not updated, in the answers of the pushes whose gradients are not finite.
 * If only the sum is not finite, the answers of all these pushes count the row. Called for
 * ascending keys after sums_make(). */
void sums_count_skipped(struct row_apply *apply, uint32_t key);
/* Ends the batch after its rows were updated. */
void sums_end(struct row_apply *apply);
/* Drops the batch. No answer counts its rows. */
void sums_abort(struct row_apply *apply);

#endif
