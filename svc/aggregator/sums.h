/* What a lane counts of rounds. */
#ifndef GRADPOOL_AGGREGATOR_SUMS_H
#define GRADPOOL_AGGREGATOR_SUMS_H

#include "svc/aggregator/lane_types.h"

/* The open round is committed. */
void sums_add(struct piece *p);

#endif
