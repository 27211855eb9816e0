/* Tasks of a job. A task is a group of pieces that are placed and moved together. */
#ifndef GRADPOOL_COORDINATOR_JOB_TASK_H
#define GRADPOOL_COORDINATOR_JOB_TASK_H

#include "svc/coordinator/job/tensor.h"

struct task {
    uint32_t id;
    uint64_t bytes;
    /* bytes of state that moves with the task, because only the lane has this state */
    uint64_t state_bytes;
    /* number of the lane; 0: none. Not a pointer, because the lane may be freed before the move. */
    uint32_t lane;
};

typedef bool (*task_wanted_fn)(const struct tensor *tensor, const struct piece *piece,
                               const void *context);
/* Lists the tasks that have a piece accepted by `wanted`, in ascending order, with `lane` 0. The
 * caller frees the list. Returns 0 or -ENOMEM. */
int tasks_list(const struct job *job, task_wanted_fn wanted, const void *context,
               struct task **ret_tasks, size_t *ret_count);
/* Returns how many of the first tasks form one batch: up to 8 MiB of state and 32 MiB of pieces,
 * but at least one task. */
size_t tasks_batch(const struct task *tasks, size_t count);
/* Like tasks_batch(), but both limits are multiplied by `times`. */
size_t tasks_larger_batch(const struct task *tasks, size_t count, uint64_t times);
/* A piece, and the index of the part of its task to which the piece is assigned. */
struct spot_of_task {
    struct tensor *tensor;
    struct piece *piece;
    uint32_t part;
};
/* Divides tasks into parts. Each part becomes a task of its own, unless the part is a whole task.
 * Pieces of the same task and part are adjacent in the array. Returns 0, -ENOMEM or an error of the
 * store; after an error nothing has changed. */
int tasks_split(struct job *job, const struct spot_of_task *pieces, size_t count, size_t parts);
struct task *tasks_find(struct task *tasks, size_t count, uint32_t id);

#endif
