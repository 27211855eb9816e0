/* Sums over a sample of the gradients of a job, for rules that choose the number of gradients of a
 * round (W22). The sample consists of at most 256 blocks of 4 KiB on a lane. A hash of piece and
 * block selects the blocks. A sum over the sample is multiplied by 2^shift, as an estimate for all
 * elements. RULES.md: A97. */
#ifndef GRADPOOL_LANE_STATE_SAMPLE_H
#define GRADPOOL_LANE_STATE_SAMPLE_H

#include "svc/lane/types.h"

struct transfer;

/* Adds the piece to the sample of its job. If there is no memory for the blocks, the piece has no
 * blocks in the sample, but its rounds count. */
void sample_add(struct piece *p);
void sample_free(struct piece *p);

/* Called when a round of gradients starts; `round` is its number in the job. */
void sample_start(struct piece *p, uint64_t round);
/* Adds the squares of a pass's inputs. */
void sample_inputs(const struct transfer *t, const void *const sources[]);
/* Adds the square of the mean, and its product with the mean of the previous round. Called in the
 * last pass of a chunk, before its result is written. `partial`: sum of the earlier passes; NULL:
 * there was none. */
void sample_mean(const struct transfer *t, const void *const sources[], const void *partial);
/* Counts a round of the piece; `round` is its number in the job. When all sampled pieces of the job
 * have ended the round, the lane sends the sums to the lowest rank of the set. `is_new`: this lane
 * has summed the gradients of the round; otherwise the sample has no sums of this round. */
void sample_commit(struct piece *p, uint64_t round, bool is_new);

#endif
