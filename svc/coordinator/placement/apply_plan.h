/* Plans of the packer, carried out on tensors and tasks. */
#ifndef GRADPOOL_COORDINATOR_PLACEMENT_APPLY_PLAN_H
#define GRADPOOL_COORDINATOR_PLACEMENT_APPLY_PLAN_H

#include "svc/coordinator/job/task.h"
#include "svc/coordinator/placement/ask_packer.h"

/* Gives new tensors pieces, lanes and tasks; the sums of the lanes do not change yet
 * (piece_attach()). */
int placing_plan(struct job *job, struct tensor *const *tensors, size_t count, struct err *err);

/* Sets `lane` of tasks that lost their lane. -ENOSPC: no lane is open. */
int placing_plan_tasks(struct job *job, struct task *tasks, size_t count, struct err *err);
/* Sets `lane` of tasks that leave a live lane. -ENOSPC: no lane is open, or a limit would be
 * exceeded. */
int placing_plan_leaving(struct job *job, struct task *tasks, size_t count, struct err *err);
/* Sets `lane` of tasks whose aggregator is about to end; no limit refuses them. */
int placing_plan_ending(struct job *job, struct task *tasks, size_t count, struct err *err);

/* Plans the tensors of a dry run. Pieces get lanes if these run, but are not attached. */
int placing_try(struct job *job, struct answer *ret_answer, struct err *err);

#endif
