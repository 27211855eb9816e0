/* Baselines for comparison: placement policies of other systems, and two simpler rules that predict
 * the loss of jobs. `serve --policy` accepts the names of these policies, but the help does not
 * list them. Only packer/ and its tests use this header. */
#ifndef GRADPOOL_PACKER_BASELINE_BASELINE_H
#define GRADPOOL_PACKER_BASELINE_BASELINE_H

#include "packer/loss/loss.h"
#include "packer/placement/placement.h"

int policy_round_robin(struct placement *placement);
int policy_hash(struct placement *placement);
int policy_mxnet(struct placement *placement);
int policy_paa(struct placement *placement);
int policy_rate(struct placement *placement);
int policy_cycle(struct placement *placement);

extern const struct loss_rule loss_rate, loss_cycle;

#endif
