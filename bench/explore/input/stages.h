/* Stages of 8 workers among jobs with few workers (narrow jobs), on a virtual clock, as in
 * section 4.1 of the FlexPS paper. PURE. */
#ifndef GRADPOOL_BENCH_EXPLORE_INPUT_STAGES_H
#define GRADPOOL_BENCH_EXPLORE_INPUT_STAGES_H

#include "bench/explore/input/trial.h"

#define STAGES_WORKERS 8
#define STAGES_COUNT 20

/* Returns the stream of narrow jobs. */
struct trial_stream stages_stream(void);
/* Draws narrow trials of the stream, and STAGES_COUNT stages at equal distances among them. The
 * caller frees the result. NULL: no memory. */
struct trial *stages_draw(const struct trial_stream *stream, uint64_t seed, size_t *ret_count);

#endif
