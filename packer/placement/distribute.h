/* distribute: distributes the pieces of a plan again among the plan's lanes. Only packer/ uses this
 * header. */
#ifndef GRADPOOL_PACKER_PLACEMENT_DISTRIBUTE_H
#define GRADPOOL_PACKER_PLACEMENT_DISTRIBUTE_H

#include "packer/placement/placement.h"

/* Distributes the pieces. Each lane keeps about its lane time, but gets pieces from all parts of
 * the request (P14). `room_ns`: largest lane time of the job on each lane. Pieces with less lane
 * time than `small_ns` are placed last. -ENOSPC: a piece fitted on no lane, and the caller has to
 * place all pieces again; -ENOMEM. */
int distribute_in_order(struct placement *placement, const double *room_ns, double small_ns);

#endif
