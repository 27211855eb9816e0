/* Parts of ranks in a round: inputs, results, words. */
#ifndef GRADPOOL_LANE_ROUND_PARTS_H
#define GRADPOOL_LANE_ROUND_PARTS_H

#include "svc/lane/types.h"

/* Decides the parts of the open round for all ranks at once: a part may depend on other ranks'
 * clocks and parts. */
void parts_assign(struct piece *p);
/* The same for a pass between a state and its copy: only the holder of the copy takes part. */
void parts_assign_keeper(struct piece *p);

#endif
