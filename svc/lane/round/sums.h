/* Counters over committed rounds. */
#ifndef GRADPOOL_LANE_ROUND_SUMS_H
#define GRADPOOL_LANE_ROUND_SUMS_H

#include "svc/lane/types.h"

/* Adds the open round, which has just been committed. */
void sums_add(struct piece *p);

#endif
