/* Applies the packer's plans to tensors and tasks. */
#ifndef GRADPOOL_COORDINATOR_PLACEMENT_APPLY_PLAN_H
#define GRADPOOL_COORDINATOR_PLACEMENT_APPLY_PLAN_H

#include "svc/coordinator/job/table.h"
#include "svc/coordinator/job/task.h"
#include "svc/coordinator/placement/ask_packer.h"

/* Assigns pieces, lanes and tasks to new tensors. piece_attach() later adds the pieces to the sums
 * of the lanes. */
int placing_plan(struct job *job, struct tensor *const *tensors, size_t count, struct err *err);

/* Chooses a lane for each shard of a new table. Returns 0, or an error of ask_packer(): -ENOSPC,
 * -ENOMEM, -EINVAL or -EINPROGRESS. */
int placing_plan_shards(const struct job_table *table, struct lane **ret_lanes, struct err *err);
/* Sets `lane` of tasks whose lane is lost. Returns 0, or -ENOSPC if no lane is open. */
int placing_plan_tasks(struct job *job, struct task *tasks, size_t count, struct err *err);
/* Sets `lane` of tasks that leave a live lane. Returns 0, or -ENOSPC if no lane is open or a limit
 * would be exceeded. */
int placing_plan_leaving(struct job *job, struct task *tasks, size_t count, struct err *err);
/* Sets `lane` of tasks whose aggregator is about to end. Limits are ignored. */
int placing_plan_ending(struct job *job, struct task *tasks, size_t count, struct err *err);

/* Plans the tensors of a dry run. Pieces are assigned to lanes of running aggregators, but not
 * attached. */
int placing_try(struct job *job, struct answer *ret_answer, struct err *err);

#endif
