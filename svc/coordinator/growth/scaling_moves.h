/* Moves tasks for growth, or for an experiment with slow lanes. */
#ifndef GRADPOOL_COORDINATOR_GROWTH_SCALING_MOVES_H
#define GRADPOOL_COORDINATOR_GROWTH_SCALING_MOVES_H

#include "svc/coordinator/growth/scaling.h"

/* Begins to move tasks of the job. When the moves have ended, scaling_left(`source`) is called,
 * unless `source` is 0. Returns whether the moves have begun. */
bool scaling_move(struct job *job, const struct task_move *moves, size_t count, uint32_t source);
/* scaling_trip() is scaling_move() for callers other than growth. The event loop calls `done` once
 * when the moves have ended. The job may have ended by then. */
typedef void (*trip_done_fn)(struct service *s, uint32_t job, bool has_moved);
bool scaling_trip(struct job *job, const struct task_move *moves, size_t count, trip_done_fn done);
void scaling_moves_destroy(struct service *s);

#endif
