/* Pieces: made when the coordinator places them, and freed. */
#ifndef GRADPOOL_LANE_PIECE_PIECE_H
#define GRADPOOL_LANE_PIECE_PIECE_H

#include "svc/lane/types.h"

/* 1: made, the last of the job's; 0: it was here already. */
int piece_place(struct lane_job *job, const struct lane_piece *spec, uint32_t epoch,
                bool recovering);
void piece_free(struct piece *p);
/* Another set of ranks for it (A41): 0, or what piece_place() says; -EBUSY: it is not at rest. */
int piece_regroup(struct lane_job *job, const struct lane_piece *spec, uint32_t epoch);
void piece_unqueue(struct piece *p); /* what is left of its round is not to be done */

#endif
