/* The parts of ranks in a round. */
#ifndef GRADPOOL_LANE_ROUND_PARTS_H
#define GRADPOOL_LANE_ROUND_PARTS_H

#include "svc/lane/types.h"

/* All parts of the open round; who takes part may depend on the others' clocks and parts. */
void parts_assign(struct piece *p);
/* The state comes from its copy, or goes there: nobody takes part but whoever has that. */
void parts_assign_keeper(struct piece *p);

#endif
