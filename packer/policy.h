/* The policies of the packer, one function each. A policy puts every element of every tensor of
 * placement->request on a lane with placement_put(), each once, and says 0; or it refuses with
 * placement_refuse(). What it has put when it refuses is thrown away. Not seen outside packer/. */
#ifndef GRADPOOL_PACKER_POLICY_H
#define GRADPOOL_PACKER_POLICY_H

#include "packer/placement.h"

typedef int (*policy_place_fn)(struct placement *placement);

int policy_least_loaded(struct placement *placement);
int policy_round_robin(struct placement *placement);
int policy_hash(struct placement *placement);
int policy_dedicated(struct placement *placement);
/* As dedicated, on fewer lanes when there are no more: for policies with a limit (P12). */
int policy_unmeasured(struct placement *placement);
int policy_mxnet(struct placement *placement);
int policy_paa(struct placement *placement);
int policy_shared(struct placement *placement);
int policy_rate(struct placement *placement);
int policy_cycle(struct placement *placement);

#endif
