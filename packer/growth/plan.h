/* scale_plan: to which lanes the tasks of one lane can go, with everybody inside his limit. Not
 * seen outside packer/. */
#ifndef GRADPOOL_PACKER_GROWTH_PLAN_H
#define GRADPOOL_PACKER_GROWTH_PLAN_H

#include "packer/growth/scale.h"

/* What one job has on one lane. */
struct scale_part {
    uint32_t lane, job; /* positions */
    uint64_t lane_ns, bytes;
};

struct scale_plan {
    const struct scale_seen *seen;
    const char *policy;
    uint32_t margin_ppm; /* off every limit */
    bool is_even;        /* dealt by bytes, as for a job that is not measured (P12) */
    bool *targets;       /* the caller fills it: one for each lane */
    /* As things stand once the moves are done. */
    struct scale_part *parts; /* ascending by lane, then job */
    size_t parts_count, parts_capacity;
    struct packer_lane *lanes; /* one for each lane */
    struct packer_node *nodes;
    struct scale_move *moves;
    size_t moves_count;
    uint64_t moved_bytes;
    /* Room for one request. */
    struct packer_lane *offer;
    struct packer_resident *residents;
    uint32_t *positions; /* of its tasks */
    struct packer_tensor *items;
};

/* -ENOMEM. To be ended with scale_plan_fini() in any case. */
int scale_plan_init(struct scale_plan *plan, const struct scale_seen *seen, const char *policy,
                    uint32_t margin_ppm);
void scale_plan_fini(struct scale_plan *plan);

/* Plans for the job to leave the lane (positions) for targets. -ENOSPC: they do not take it,
 * -EINVAL: packer_place() finds no sense in it, -ENOMEM; then the plan is good for nothing more. */
int scale_plan_leave(struct scale_plan *plan, uint32_t job, uint32_t lane);

/* The same, but the first of its tasks there and those that fit into `keep_bytes` with it stay. */
int scale_plan_leave_beyond(struct scale_plan *plan, uint32_t job, uint32_t lane,
                            uint64_t keep_bytes);

/* Several times: then tasks do not ascend until they are sorted. */
void scale_sort_moves(struct scale_plan *plan);

/* The same for all that are on the lane, most lane time first. */
int scale_plan_empty(struct scale_plan *plan, uint32_t lane);

/* Where the job loses most to others, by the policy; not where a decision is being carried out.
 * `ret_loss` is that, 0 to 1, and 0 for -ENOENT: nowhere; -ENOMEM. */
int scale_plan_worst_lane(struct scale_plan *plan, uint32_t job, uint32_t *ret_lane,
                          double *ret_loss);

#endif
