/* The part of each rank in a round: whether the rank supplies an input, receives the result, and
 * gets a completion word. */
#ifndef GRADPOOL_LANE_ROUND_PARTS_H
#define GRADPOOL_LANE_ROUND_PARTS_H

#include "svc/lane/types.h"

/* Decides the parts of all ranks in the open round, in one call, because a part may depend on the
 * clocks and parts of other ranks. */
void parts_assign(struct piece *p);
/* Decides the parts in a pass between a state and its copy, in which only the holder of the copy
 * takes part. */
void parts_assign_holder(struct piece *p);

#endif
