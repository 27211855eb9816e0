/* Memory that a lane will allocate. The control thread prepares the pages of this memory, so that
 * the lane has no page faults after a move or in a first round (A73). Functions of this header must
 * run on the lane's thread. */
#ifndef GRADPOOL_LANE_WANTED_H
#define GRADPOOL_LANE_WANTED_H

#include "svc/lane/lane.h"

/* Bytes of the arrays to allocate for one piece. 0: the piece needs no such array, or is already on
 * the lane. */
struct wanted_arrays {
    size_t state_bytes, kept_bytes;
};

/* Computes the memory to allocate for these pieces: one row of arrays for each piece, and the sum
 * of all other memory. Returns 0 or an error. After an error the caller prepares no memory.
 * -ENOSPC: limit of the lane. -EDQUOT: limit of the job. -EINVAL: too many workers. */
int wanted_by_pieces(struct lane *lane, uint32_t job, uint32_t workers,
                     const struct lane_piece *pieces, size_t count, struct wanted_arrays *ret_rows,
                     size_t *ret_rest_bytes);

/* Writes the sizes of the allocations for which jobs wait, at most `room` sizes. Returns the number
 * of sizes. */
size_t wanted_by_jobs(const struct lane *lane, size_t *ret_bytes, size_t room);
/* Resumes waiting jobs, because the memory is ready. If `why_not` is not NULL, the memory could not
 * be prepared, and the waiting jobs fail with this reason. */
void wanted_is_ready(struct lane *lane, const char *why_not);

#endif
