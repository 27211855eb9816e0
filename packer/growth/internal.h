/* The rules of scale_tick(), in the order of their calls. Only packer/ uses this header. */
#ifndef GRADPOOL_PACKER_GROWTH_INTERNAL_H
#define GRADPOOL_PACKER_GROWTH_INTERNAL_H

#include "packer/growth/look.h"

struct scale_plan;

/* A rule of growth. Returns 1 if the rule has made a decision, 0 if not, or -ENOMEM. */
typedef int (*scale_rule_fn)(struct scale *scale, struct scale_look *look,
                             struct scale_decision *decision);

int scale_open_wanted(struct scale *scale, struct scale_look *look, struct scale_decision *d);
int scale_measure_alone(struct scale *scale, struct scale_look *look, struct scale_decision *d);
int scale_narrow(struct scale *scale, struct scale_look *look, struct scale_decision *d);
int scale_relieve_worst(struct scale *scale, struct scale_look *look, struct scale_decision *d);
int scale_drain_emptiest(struct scale *scale, struct scale_look *look, struct scale_decision *d);
int scale_park_idle(struct scale *scale, struct scale_look *look, struct scale_decision *d);
int scale_stop_unused(struct scale *scale, struct scale_look *look, struct scale_decision *d);

/* Adds the plan's target lanes in `state` to the decision. If the state is PACKER_LANE_UNSTARTED,
 * adds only lanes of one aggregator. */
void scale_name_targets(const struct scale_plan *plan, enum packer_lane_state state,
                        struct scale_decision *decision);

#endif
