/* What a lane counts of rounds. */
#ifndef GRADPOOL_LANE_ROUND_SUMS_H
#define GRADPOOL_LANE_ROUND_SUMS_H

#include "svc/lane/types.h"

/* The open round is committed. */
void sums_add(struct piece *p);

#endif
