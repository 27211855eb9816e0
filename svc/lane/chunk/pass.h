/* One pass of a chunk, for transfer.c. Errors are those of transfer_fail(), which has handled them
 * already. */
#ifndef GRADPOOL_LANE_CHUNK_PASS_H
#define GRADPOOL_LANE_CHUNK_PASS_H

#include "svc/lane/chunk/transfer.h"

/* Posts the reads of a pass for the first `places` members. Inputs that are inline or mapped need
 * no read. */
int pass_read(struct transfer *t, uint32_t places);
/* Returns whether no input is left for another pass. */
bool pass_is_last(const struct transfer *t);
/* Reduces the inputs of this pass into the partial slot, because more inputs follow. */
int pass_sum_partial(struct transfer *t);
/* Reduces the last inputs. Stores the result in the memory of each mapped target, and in the result
 * slot for all others. */
int pass_sum(struct transfer *t);
/* Returns the result slot. */
const void *pass_result(const struct transfer *t);
/* Returns the chunk's offset in the landing area of the member at `place`. */
uint64_t pass_output_offset(const struct transfer *t, uint32_t place);
/* Returns the chunk's landing area at that member. NULL: its memory is not mapped. */
void *pass_map_output(const struct transfer *t, uint32_t place);

#endif
