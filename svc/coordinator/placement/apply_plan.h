/* Applies plans of the packer to tensors and tasks. */
#ifndef GRADPOOL_COORDINATOR_PLACEMENT_APPLY_PLAN_H
#define GRADPOOL_COORDINATOR_PLACEMENT_APPLY_PLAN_H

#include "svc/coordinator/job/task.h"
#include "svc/coordinator/placement/ask_packer.h"

/* Gives new tensors their pieces, lanes and tasks. The sums of the lanes change later, in
 * piece_attach(). */
int placing_plan(struct job *job, struct tensor *const *tensors, size_t count, struct err *err);

/* Chooses `lane` for tasks that have lost their lane. -ENOSPC: no lane is open. */
int placing_plan_tasks(struct job *job, struct task *tasks, size_t count, struct err *err);
/* Chooses `lane` for tasks that leave a lane which is alive. -ENOSPC: no lane is open, or a limit
 * would be exceeded. */
int placing_plan_leaving(struct job *job, struct task *tasks, size_t count, struct err *err);
/* Chooses `lane` for tasks whose aggregator is about to end. No limit applies. */
int placing_plan_ending(struct job *job, struct task *tasks, size_t count, struct err *err);

/* Plans the tensors of a dry run. Pieces get lanes of running aggregators, but are not attached to
 * them. */
int placing_try(struct job *job, struct answer *ret_answer, struct err *err);

#endif
