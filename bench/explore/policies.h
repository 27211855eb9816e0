/* The policies that `explore --simulate` compares. */
#ifndef GRADPOOL_BENCH_EXPLORE_POLICIES_H
#define GRADPOOL_BENCH_EXPLORE_POLICIES_H

#include "bench/explore/site/world.h"

#define POLICIES_MAX 24

/* Writes the policies `fifo-W`, `noreuse`, `eps`, `rest`, `preload` (rest with preloaded workers),
 * and the variants of `restart`. Returns their number. */
size_t policies_of(const struct trial_stream *stream,
                   struct world_policy ret_policies[POLICIES_MAX]);
/* Writes the policies for stages among narrow jobs: `priority`, `greedy`, `fifo-W`, `rest`. Returns
 * their number. */
size_t policies_of_stages(uint32_t narrow, struct world_policy ret_policies[POLICIES_MAX]);

#endif
