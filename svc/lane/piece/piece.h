/* Creates pieces when the coordinator places them, and frees them. */
#ifndef GRADPOOL_LANE_PIECE_PIECE_H
#define GRADPOOL_LANE_PIECE_PIECE_H

#include "svc/lane/types.h"

/* Places a piece. Returns 1 if the piece was created at the end of the job's list, 0 if the piece
 * was already here, or an error of lane_place(). */
int piece_place(struct lane_job *job, const struct lane_piece *spec, uint32_t epoch,
                bool recovering);
void piece_free(struct piece *p);
/* Changes the ranks of the piece under a new epoch (A41). A piece that is not here is placed.
 * Returns 0, a result of piece_place(), or -EBUSY if the piece is not frozen. */
int piece_regroup(struct lane_job *job, const struct lane_piece *spec, uint32_t epoch);
void piece_unqueue(struct piece *p); /* Removes the unstarted chunks of the round from the queue. */

#endif
