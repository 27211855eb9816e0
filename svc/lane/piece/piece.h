/* Pieces: created when the coordinator places them, and freed. */
#ifndef GRADPOOL_LANE_PIECE_PIECE_H
#define GRADPOOL_LANE_PIECE_PIECE_H

#include "svc/lane/types.h"

/* Places a piece. 1: the piece was created, and is the last in the job's list; 0: the piece was
 * already here. Errors of lane_place(). */
int piece_place(struct lane_job *job, const struct lane_piece *spec, uint32_t epoch,
                bool recovering);
void piece_free(struct piece *p);
/* Gives the piece another set of ranks under a new epoch (A41), or places it if it is not here.
 * Returns 0 or the result of piece_place(); -EBUSY: the piece is not at rest. */
int piece_regroup(struct lane_job *job, const struct lane_piece *spec, uint32_t epoch);
void piece_unqueue(struct piece *p); /* Drops the chunks of the round that have not started. */

#endif
