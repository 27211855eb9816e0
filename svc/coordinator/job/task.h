/* Tasks of a job: groups of pieces, the unit of placement and migration. */
#ifndef GRADPOOL_COORDINATOR_JOB_TASK_H
#define GRADPOOL_COORDINATOR_JOB_TASK_H

#include "svc/coordinator/job/tensor.h"

struct task {
    uint32_t id;
    uint64_t bytes;
    uint64_t state_bytes; /* state that only the lane has, and that moves along */
    uint32_t lane;        /* lane number, since a lane may end before the move; 0: none */
};

typedef bool (*task_wanted_fn)(const struct tensor *tensor, const struct piece *piece,
                               const void *context);
/* Tasks of the pieces that `wanted` accepts, ascending, `lane` 0. The caller frees the list.
 * -ENOMEM. */
int tasks_list(const struct job *job, task_wanted_fn wanted, const void *context,
               struct task **ret_tasks, size_t *ret_count);
/* Number of tasks from the first on that move in one batch: 8 MiB of state, 32 MiB in all, at least
 * one task. */
size_t tasks_batch(const struct task *tasks, size_t count);
/* Like tasks_batch(), with `times` the bytes. */
size_t tasks_larger_batch(const struct task *tasks, size_t count, uint64_t times);
/* A piece and the number of its part, from 0. */
struct spot_of_task {
    struct tensor *tensor;
    struct piece *piece;
    uint32_t part;
};
/* Splits tasks: each part becomes a task, unless it is a whole task already. Pieces of one task and
 * part are adjacent. On failure (-ENOMEM, errors of the store) nothing has changed. */
int tasks_split(struct job *job, const struct spot_of_task *pieces, size_t count, size_t parts);
struct task *tasks_find(struct task *tasks, size_t count, uint32_t id);

#endif
