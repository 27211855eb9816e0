/* Chunks in progress on a lane: transfer.c moves them, pass.c finds their bytes, window.c owns the
 * slots. */
#ifndef GRADPOOL_LANE_CHUNK_TRANSFER_H
#define GRADPOOL_LANE_CHUNK_TRANSFER_H

#include "svc/lane/state/parameters.h"

/* Part of a lane's turn that a long chunk counts for. Shorter chunks count for less; a small one
 * counts for 1. */
#define TRANSFER_SHARE 16
/* Works on one chunk of the job, and returns the part of the turn that it counts for; 0: no work is
 * possible now. */
uint32_t transfer_turn(struct lane_job *job);
/* Handles the completion of a read or write of the chunk in the worker's memory. The caller then
 * calls job_release(). */
void transfer_progress(struct transfer *t, struct worker *w, int error);
/* Returns whether an operation of the job is posted. */
bool transfer_is_active(const struct lane_job *job);
/* Returns whether a chunk that is not summed yet needs this rank's memory, or a chunk can no longer
 * be finished. */
bool transfer_needs(const struct lane_job *job, uint32_t rank);
/* Returns whether a chunk of the piece cannot be finished because a worker is lost. */
bool transfer_is_stuck(const struct piece *p);
/* Handles an error of the member at `place`, and returns `code`. -EAGAIN: the operation is posted
 * again later. If a lost rank may come back, or its job is elastic (A40), the chunk waits.
 * Otherwise the job fails. */
int transfer_fail(struct transfer *t, uint32_t place, int code);
/* Gives up the piece's chunks. Each becomes free when none of its operations is posted any more. */
void transfer_give_up(struct piece *p);
/* Returns the number of places that may supply inputs: the members, and a replica holder while a
 * copy is read. */
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
