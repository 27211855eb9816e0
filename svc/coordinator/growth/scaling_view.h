/* Describes the service to the rules of growth. */
#ifndef GRADPOOL_COORDINATOR_GROWTH_SCALING_VIEW_H
#define GRADPOOL_COORDINATOR_GROWTH_SCALING_VIEW_H

#include "svc/coordinator/growth/scaling.h"

/* Lanes, jobs, tasks and wanted lanes, as input of the rules. */
struct scaling_look {
    struct scale_seen seen;
    struct scale_lane *lanes;
    struct scale_job *jobs;
    struct scale_task *tasks;
    struct scale_wish *wishes;
    struct budgets budgets;
    struct job **owners; /* owners[i] is the job that jobs[i] describes */
    uint32_t *numbers;   /* numbers[i] is the number of the task that tasks[i] describes */
};

/* Describes the service. Returns 0 or -ENOMEM. */
int scaling_look_make(struct service *s, struct scaling_look *ret_look);
void scaling_look_free(struct scaling_look *look);

#endif
