/* Moves tasks for growth, or away from slow lanes. */
#ifndef GRADPOOL_COORDINATOR_GROWTH_SCALING_MOVES_H
#define GRADPOOL_COORDINATOR_GROWTH_SCALING_MOVES_H

#include "svc/coordinator/growth/scaling.h"

/* Begins to move tasks of the job. If `source` is not 0, scaling_left() is called for that lane at
 * the end. Returns whether the moves have begun. */
bool scaling_move(struct job *job, const struct task_move *moves, size_t count, uint32_t source);
/* Called once, from the loop, when the moves have ended; the job may be gone by then.
 * scaling_trip() is like scaling_move(), for callers other than growth. */
typedef void (*trip_done_fn)(struct service *s, uint32_t job, bool has_moved);
bool scaling_trip(struct job *job, const struct task_move *moves, size_t count, trip_done_fn done);
void scaling_moves_destroy(struct service *s);

#endif
