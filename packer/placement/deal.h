/* deal: distributes the pieces of a plan again among the plan's lanes. Only packer/ uses this
 * header. */
#ifndef GRADPOOL_PACKER_PLACEMENT_DEAL_H
#define GRADPOOL_PACKER_PLACEMENT_DEAL_H

#include "packer/placement/placement.h"

/* Each lane keeps about its lane time of this placement, but gets pieces from all parts of the
 * request (P14). `room_ns`: the most lane time of the job on each lane. Pieces below `crumb_ns` are
 * dealt last. -ENOSPC: there was no room for a piece, and the caller has to place all pieces again;
 * -ENOMEM. */
int deal_in_order(struct placement *placement, const double *room_ns, double crumb_ns);

#endif
