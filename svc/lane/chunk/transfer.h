/* Chunks on their way through a lane: transfer.c moves them,
 * pass.c knows where their bytes lie, window.c owns the slots. */
#ifndef GRADPOOL_LANE_CHUNK_TRANSFER_H
#define GRADPOOL_LANE_CHUNK_TRANSFER_H

#include "svc/lane/state/parameters.h"

/* What a long chunk takes of a lane's turn; a short one takes its part of that, a small one 1. */
#define TRANSFER_SHARE 16
/* Does one chunk's worth of work for the job, and returns its share; 0: nothing can be done now. */
uint32_t transfer_turn(struct lane_job *job);
/* A read or a write of it, by this worker, is over. The caller releases the job. */
void transfer_progress(struct transfer *t, struct worker *w, int error);
bool transfer_is_active(const struct lane_job *job);
/* A chunk not yet summed needs this rank's memory, or one cannot be finished any more. */
bool transfer_needs(const struct lane_job *job, uint32_t rank);
/* A chunk of the piece waits for somebody who is lost. */
bool transfer_is_stuck(const struct piece *p);
/* Its job fails unless the post may be tried again (-EAGAIN), or somebody will say what becomes of
 * a job that has lost the rank (A40). Returns `code`. */
int transfer_fail(struct transfer *t, uint32_t place, int code);
/* The piece's chunks are given up: each is free once nothing of it is posted any more. */
void transfer_give_up(struct piece *p);
/* Whose inputs there may be: the members, and behind them a keeper. */
static inline uint32_t transfer_places(const struct piece *p)
{
    return p->members + (p->parameters && p->parameters->fetched > 0);
}
static inline bool transfer_gives(const struct transfer *t, uint32_t place)
{
    return t->piece->ranks[place].is_source &&
           (t->source == OPERATION_EVERYBODY || t->source == place);
}
static inline bool transfer_takes(const struct transfer *t, uint32_t place)
{
    return t->piece->ranks[place].is_target &&
           (t->target == OPERATION_EVERYBODY || t->target == place) &&
           (t->array == 0 || t->piece->operation->saves);
}

#endif
