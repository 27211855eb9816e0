/* The tasks of a job: what its pieces make together, the unit of placing and moving. */
#ifndef GRADPOOL_COORDINATOR_JOB_TASK_H
#define GRADPOOL_COORDINATOR_JOB_TASK_H

#include "svc/coordinator/job/tensor.h"

struct task {
    uint32_t id;
    uint64_t bytes;
    uint64_t state_bytes; /* that its lane keeps, beside what workers have: it travels along */
    uint32_t lane;        /* number, as lanes may end before it moves; 0: none */
};

typedef bool (*task_wanted_fn)(const struct tensor *tensor, const struct piece *piece,
                               const void *context);
/* Tasks of the pieces that are wanted, ascending, without lanes; for free(). -ENOMEM. */
int tasks_list(const struct job *job, task_wanted_fn wanted, const void *context,
               struct task **ret_tasks, size_t *ret_count);
/* How many of them, from the first on, move at once: 8 MiB of state, 32 MiB in all, or one task. */
size_t tasks_batch(const struct task *tasks, size_t count);
/* So many times as much. */
size_t tasks_larger_batch(const struct task *tasks, size_t count, uint64_t times);
/* Piece by piece, the part (from 0 on) that each belongs to. */
struct spot_of_task {
    struct tensor *tensor;
    struct piece *piece;
    uint32_t part;
};
/* Each part becomes a task of its own, unless it is all of one already. Stored, or nothing has
 * changed. Pieces of one task and part stand together. */
int tasks_split(struct job *job, const struct spot_of_task *pieces, size_t count, size_t parts);
struct task *tasks_find(struct task *tasks, size_t count, uint32_t id);

#endif
