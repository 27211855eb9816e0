/* The lanes, jobs and tasks that the rules of growth see. */
#ifndef GRADPOOL_COORDINATOR_GROWTH_SCALING_VIEW_H
#define GRADPOOL_COORDINATOR_GROWTH_SCALING_VIEW_H

#include "svc/coordinator/growth/scaling.h"

/* What there is, as the rules see it; who stands behind each number. */
struct scaling_look {
    struct scale_seen seen;
    struct scale_lane *lanes;
    struct scale_job *jobs;
    struct scale_task *tasks;
    struct scale_wish *wishes;
    struct budgets budgets;
    struct job **owners; /* of jobs */
    uint32_t *numbers;   /* of tasks */
};

/* -ENOMEM. */
int scaling_look_make(struct service *s, struct scaling_look *ret_look);
void scaling_look_free(struct scaling_look *look);

#endif
