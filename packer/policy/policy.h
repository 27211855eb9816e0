/* The policies of the packer, one function each. A policy places every element of every tensor of
 * placement->request once, with placement_put(), and returns 0. A policy for which a piece fits on
 * no lane refuses the request with placement_refuse() and returns the result; the caller then drops
 * all pieces. Only packer/ uses this header. */
#ifndef GRADPOOL_PACKER_POLICY_POLICY_H
#define GRADPOOL_PACKER_POLICY_POLICY_H

#include "packer/loss/loss.h"
#include "packer/placement/placement.h"

typedef int (*policy_place_fn)(struct placement *placement);

int policy_least_loaded(struct placement *placement);
int policy_dedicated(struct placement *placement);
/* Like policy_dedicated(), but with fewer lanes if not enough lanes are free. Places unmeasured
 * jobs for policies with a loss limit (P12). */
int policy_unmeasured(struct placement *placement);
int policy_shared(struct placement *placement);
/* Packs with the given rule of loss, within the loss limits of all jobs. */
int policy_under_limit(struct placement *placement, const struct loss_rule *rule);

#endif
