/* Parts of a decision, which the rules of scale_tick() fill in. Only packer/ uses this header. */
#ifndef GRADPOOL_PACKER_GROWTH_DECISION_H
#define GRADPOOL_PACKER_GROWTH_DECISION_H

#include "packer/growth/scale.h"

struct scale_plan;

/* Allocates `lanes` of the decision for `count` lanes. Returns 0 or -ENOMEM. */
int scale_name_lanes(struct scale_decision *decision, size_t count);
/* Moves the list of moves, with its memory, from the plan to the decision. */
void scale_take_moves(struct scale_plan *plan, struct scale_decision *decision);

#endif
