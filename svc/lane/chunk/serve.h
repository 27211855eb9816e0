/* Writes results to ranks outside the set of a round, between the chunks of rounds. */
#ifndef GRADPOOL_LANE_CHUNK_SERVE_H
#define GRADPOOL_LANE_CHUNK_SERVE_H

#include "svc/lane/worker/serving.h"

/* Works on one chunk for one rank. Returns the chunk's share of the turn, like transfer_turn(); 0:
 * no work is possible now. */
uint32_t serve_turn(struct lane_job *job);
/* Returns whether the next chunk is for a late rank. True and false alternate, so chunks for late
 * ranks and chunks of rounds take turns. */
bool serve_is_next(struct lane_job *job);
/* Handles the completion of a write that serve_turn() has posted. transfer_progress() handles all
 * other writes. The caller then calls job_release(). */
void serve_progress(struct worker *w, int error);

#endif
