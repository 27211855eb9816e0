/* deal: the pieces of a plan among the lanes that it takes. Not seen outside packer/. */
#ifndef GRADPOOL_PACKER_PLACEMENT_DEAL_H
#define GRADPOOL_PACKER_PLACEMENT_DEAL_H

#include "packer/placement/placement.h"

/* Each lane keeps about the lane time that it has in this placement, but gets it from all over the
 * request (P14). `room_ns` by lane: the most that the job may take there. Pieces below `crumb_ns`
 * are dealt last. -ENOSPC: some piece found no room when its turn came; the placement has to be
 * made again. -ENOMEM. */
int deal_in_order(struct placement *placement, const double *room_ns, double crumb_ns);

#endif
