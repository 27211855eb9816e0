/* Counters over committed rounds. */
#ifndef GRADPOOL_LANE_ROUND_SUMS_H
#define GRADPOOL_LANE_ROUND_SUMS_H

#include "svc/lane/types.h"

/* Adds the open round to the counters of job and lane. The caller commits the round. */
void sums_add(struct piece *p);

#endif
