/* One pass of a chunk, for transfer.c. */
#ifndef GRADPOOL_LANE_CHUNK_PASS_H
#define GRADPOOL_LANE_CHUNK_PASS_H

#include "svc/lane/chunk/transfer.h"

/* Posts the reads of a pass, of the first so many places only. Where all inputs are at hand it is
 * over at once. */
int pass_read(struct transfer *t, uint32_t places);
bool pass_is_last(const struct transfer *t);
/* More inputs than one pass takes: keeps the partial result. */
int pass_sum_partial(struct transfer *t);
/* One store to each target that is mapped, and to the result slot for the rest. */
int pass_sum(struct transfer *t);
const void *pass_result(const struct transfer *t);
uint64_t pass_output_offset(const struct transfer *t, uint32_t place);
/* NULL: not mapped. */
void *pass_map_output(const struct transfer *t, uint32_t place);

#endif
