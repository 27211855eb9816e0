/* A plan of the packer becomes pieces on lanes. */
#ifndef GRADPOOL_COORDINATOR_PLACEMENT_APPLY_PLAN_H
#define GRADPOOL_COORDINATOR_PLACEMENT_APPLY_PLAN_H

#include "svc/coordinator/job/task.h"
#include "svc/coordinator/placement/ask_packer.h"

/* Gives pieces, lanes and tasks to new tensors; what the lanes carry does not change yet. */
int placing_plan(struct job *job, struct tensor *const *tensors, size_t count, struct err *err);

/* Fills `lane` of each of these, which have lost theirs. -ENOSPC: no lane is open. */
int placing_plan_tasks(struct job *job, struct task *tasks, size_t count, struct err *err);
/* The same for tasks that leave a lane which lives. -ENOSPC, too: they would break a limit. */
int placing_plan_leaving(struct job *job, struct task *tasks, size_t count, struct err *err);
/* The same for tasks whose aggregator is to end: no limit refuses them. */
int placing_plan_ending(struct job *job, struct task *tasks, size_t count, struct err *err);

/* For a trial with these tensors. Pieces get lanes, as long as these run, but nothing
 * lies on them. */
int placing_try(struct job *job, struct answer *ret_answer, struct err *err);

#endif
