/* scale_plan: finds target lanes for the tasks of one lane, so that every job stays within its
 * limit. Only packer/ uses this header. */
#ifndef GRADPOOL_PACKER_GROWTH_PLAN_H
#define GRADPOOL_PACKER_GROWTH_PLAN_H

#include "packer/growth/scale.h"

/* All tasks of one job on one lane. */
struct scale_part {
    uint32_t lane, job; /* positions of the lane and of the job */
    uint64_t lane_ns, bytes;
};

struct scale_plan {
    const struct scale_seen *seen;
    const char *policy;
    uint32_t margin_ppm; /* margin that is subtracted from every loss limit */
    bool is_even;  /* true: tasks are distributed by their bytes, as for an unmeasured job (P12) */
    bool *targets; /* true for each lane to which tasks may move; set by the caller */
    /* The parts after the planned moves, sorted by lane, then by job. */
    struct scale_part *parts;
    size_t parts_count, parts_capacity;
    struct packer_lane *lanes; /* description of each lane */
    struct packer_node *nodes;
    struct scale_move *moves;
    size_t moves_count;
    uint64_t moved_bytes;
    /* Buffers of one request to packer_place(). */
    struct packer_lane *offer;
    struct packer_resident *residents;
    uint32_t *positions; /* position of the task that each entry of `items` describes */
    struct packer_tensor *items;
};

/* Creates a plan. -ENOMEM. The caller calls scale_plan_fini() also after an error. */
int scale_plan_init(struct scale_plan *plan, const struct scale_seen *seen, const char *policy,
                    uint32_t margin_ppm);
void scale_plan_fini(struct scale_plan *plan);

/* Plans moves of all tasks of the job from the lane to target lanes. `job` and `lane` are positions
 * in the input. Returns the errors of packer_place(); -ENOSPC: the targets lack room. After an
 * error the plan can only be freed. */
int scale_plan_leave(struct scale_plan *plan, uint32_t job, uint32_t lane);

/* Like scale_plan_leave(), but tasks with `keep_bytes` in total stay on the lane: the first task,
 * and each further task that still fits. */
int scale_plan_leave_beyond(struct scale_plan *plan, uint32_t job, uint32_t lane,
                            uint64_t keep_bytes);

/* Sorts the moves by task. Needed after more than one call of scale_plan_leave(). */
void scale_sort_moves(struct scale_plan *plan);

/* Plans moves of all tasks of the lane, the job with the most lane time first, and sorts the moves.
 * Returns the errors of scale_plan_leave(). */
int scale_plan_empty(struct scale_plan *plan, uint32_t lane);

/* Finds the lane on which the job has the highest predicted loss, among lanes without a change in
 * progress. `ret_loss`: the loss, 0 to 1. -ENOENT with a loss of 0: no such lane has another job;
 * -ENOMEM. */
int scale_plan_worst_lane(struct scale_plan *plan, uint32_t job, uint32_t *ret_lane,
                          double *ret_loss);

#endif
