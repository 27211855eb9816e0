/* deal: distributes the pieces of a plan anew among the plan's lanes. Not seen outside packer/. */
#ifndef GRADPOOL_PACKER_PLACEMENT_DEAL_H
#define GRADPOOL_PACKER_PLACEMENT_DEAL_H

#include "packer/placement/placement.h"

/* Each lane keeps about its lane time of this placement, but gets pieces from all over the request
 * (P14). `room_ns`: for each lane, most lane time of the job. Pieces below `crumb_ns` are dealt
 * last. -ENOSPC: a piece found no room, and the caller has to place all pieces again; -ENOMEM. */
int deal_in_order(struct placement *placement, const double *room_ns, double crumb_ns);

#endif
