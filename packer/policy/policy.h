/* The policies of the packer, one function each. A policy puts every element of every tensor of
 * placement->request on a lane with placement_put(), each once, and says 0; or it refuses with
 * placement_refuse(). What it has put when it refuses is thrown away. Not seen outside packer/. */
#ifndef GRADPOOL_PACKER_POLICY_POLICY_H
#define GRADPOOL_PACKER_POLICY_POLICY_H

#include "packer/loss/loss.h"
#include "packer/placement/placement.h"

typedef int (*policy_place_fn)(struct placement *placement);

int policy_least_loaded(struct placement *placement);
int policy_dedicated(struct placement *placement);
/* As dedicated, on fewer lanes when there are no more: for policies with a limit (P12). */
int policy_unmeasured(struct placement *placement);
int policy_shared(struct placement *placement);
/* Packing under a loss limit, by any rule of loss. */
int policy_under_limit(struct placement *placement, const struct loss_rule *rule);

#endif
