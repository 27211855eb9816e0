/* Tasks that growth moves, or that leave slow lanes. */
#ifndef GRADPOOL_COORDINATOR_GROWTH_SCALING_MOVES_H
#define GRADPOOL_COORDINATOR_GROWTH_SCALING_MOVES_H

#include "svc/coordinator/growth/scaling.h"

/* Begins to move tasks of the job; `source` hears of the end by scaling_left(), 0: nobody does.
 * Whether they are on their way. */
bool scaling_move(struct job *job, const struct task_move *moves, size_t count, uint32_t source);
/* The same for what is not growth; `done` comes from the loop, once, and the job may be gone. */
typedef void (*trip_done_fn)(struct service *s, uint32_t job, bool has_moved);
bool scaling_trip(struct job *job, const struct task_move *moves, size_t count, trip_done_fn done);
void scaling_moves_destroy(struct service *s);

#endif
