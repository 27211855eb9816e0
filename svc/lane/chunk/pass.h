/* One pass of a chunk, for transfer.c. A function that returns an error has already failed the job
 * with this error. */
#ifndef GRADPOOL_LANE_CHUNK_PASS_H
#define GRADPOOL_LANE_CHUNK_PASS_H

#include "svc/lane/chunk/transfer.h"

/* Posts the reads of a pass for the first `places` members. Inputs that are inline or mapped need
 * no read. */
int pass_read(struct transfer *t, uint32_t places);
/* Returns whether this is the last pass, because the chunk has no further inputs. */
bool pass_is_last(const struct transfer *t);
/* Reduces the inputs of this pass into the slot for the partial result. Called if more inputs
 * follow. */
int pass_sum_partial(struct transfer *t);
/* Reduces the last inputs. The result is stored in the memory of each mapped target, and in the
 * result slot for all others. */
int pass_sum(struct transfer *t);
const void *pass_result(const struct transfer *t);
/* Returns the offset of the chunk in the output area of the member at index `place`. */
uint64_t pass_output_offset(const struct transfer *t, uint32_t place);
/* Returns the address of the chunk in this member's output area, or NULL if the member's memory is
 * not mapped. */
void *pass_map_output(const struct transfer *t, uint32_t place);

#endif
