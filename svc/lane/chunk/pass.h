/* One pass of a chunk, for transfer.c. Errors are those of transfer_fail(), which has handled
 * them. */
#ifndef GRADPOOL_LANE_CHUNK_PASS_H
#define GRADPOOL_LANE_CHUNK_PASS_H

#include "svc/lane/chunk/transfer.h"

/* Posts the reads of a pass for the first `places` members. Inputs at hand (inline, mapped) need no
 * read. */
int pass_read(struct transfer *t, uint32_t places);
/* True when no input is left for another pass. */
bool pass_is_last(const struct transfer *t);
/* Reduces the inputs of this pass to the partial slot: more inputs follow. */
int pass_sum_partial(struct transfer *t);
/* Reduces the last inputs, and stores the result to each mapped target, and to the result slot for
 * the others. */
int pass_sum(struct transfer *t);
/* The result slot. */
const void *pass_result(const struct transfer *t);
/* Offset of the chunk in the landing area of the member at `place`. */
uint64_t pass_output_offset(const struct transfer *t, uint32_t place);
/* The chunk's landing area at that member; NULL: not mapped. */
void *pass_map_output(const struct transfer *t, uint32_t place);

#endif
