/* Chunks in progress on a lane: transfer.c moves them, pass.c finds their bytes, window.c owns the
 * slots. */
#ifndef GRADPOOL_LANE_CHUNK_TRANSFER_H
#define GRADPOOL_LANE_CHUNK_TRANSFER_H

#include "svc/lane/state/parameters.h"

/* Share of a lane's turn that a long chunk takes; a short one takes its part of that, a small one
 * 1. */
#define TRANSFER_SHARE 16
/* Does one chunk's worth of work for the job, and returns its share of the turn; 0: no work is
 * possible now. */
uint32_t transfer_turn(struct lane_job *job);
/* A read or write of the chunk in the worker's memory has completed. The caller calls
 * job_release(). */
void transfer_progress(struct transfer *t, struct worker *w, int error);
/* True while an operation of the job is posted. */
bool transfer_is_active(const struct lane_job *job);
/* True when a chunk that is not summed yet needs this rank's memory, or a chunk can no longer be
 * finished. */
bool transfer_needs(const struct lane_job *job, uint32_t rank);
/* True when a chunk of the piece cannot be finished because a worker is lost. */
bool transfer_is_stuck(const struct piece *p);
/* Handles an error of the member at `place`. -EAGAIN: the post is tried again later; a lost
 * rank that may come back, or whose job is elastic (A40): the chunk waits; else the job fails.
 * Returns `code`. */
int transfer_fail(struct transfer *t, uint32_t place, int code);
/* Gives up the piece's chunks: each is free once nothing of it is posted. */
void transfer_give_up(struct piece *p);
/* Places that may give inputs: the members, then a replica holder while a copy is read. */
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
