/* deal: distributes the pieces of a plan again among the plan's lanes. Only packer/ uses this
 * header. */
#ifndef GRADPOOL_PACKER_PLACEMENT_DEAL_H
#define GRADPOOL_PACKER_PLACEMENT_DEAL_H

#include "packer/placement/placement.h"

/* Distributes the pieces. Each lane keeps about its lane time, but gets pieces from all parts of
 * the request (P14). `room_ns`: largest lane time of the job on each lane. Pieces with less lane
 * time than `crumb_ns` are placed last. -ENOSPC: a piece had no room, and the caller has to place
 * all pieces again; -ENOMEM. */
int deal_in_order(struct placement *placement, const double *room_ns, double crumb_ns);

#endif
