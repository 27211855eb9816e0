/* Chunks in progress on a lane. transfer.c runs the chunks, pass.c locates their bytes, window.c
 * owns the slots. */
#ifndef GRADPOOL_LANE_CHUNK_TRANSFER_H
#define GRADPOOL_LANE_CHUNK_TRANSFER_H

#include "svc/lane/state/parameters.h"

/* Number of shares of a lane's turn that a long chunk uses. A shorter chunk uses fewer shares, but
 * at least 1. */
#define TRANSFER_SHARE 16
/* Works on one chunk of the job. Returns the chunk's share of the turn; 0: no work is possible
 * now. */
uint32_t transfer_turn(struct lane_job *job);
/* Called when a read or write of the chunk in the worker's memory has completed. The caller then
 * calls job_release(). */
void transfer_progress(struct transfer *t, struct worker *w, int error);
bool transfer_is_active(const struct lane_job *job);
/* Returns whether a chunk still has to read this rank's memory, or cannot complete any more. */
bool transfer_needs(const struct lane_job *job, uint32_t rank);
/* Returns whether a chunk of the piece cannot complete because a worker is lost. */
bool transfer_is_stuck(const struct piece *p);
/* Handles an error of the member at index `place`, and returns `code`. After -EAGAIN the operation
 * is posted again later. If a lost rank may connect again, or the job is elastic (A40), the chunk
 * waits. In all other cases the job fails. */
int transfer_fail(struct transfer *t, uint32_t place, int code);
/* Aborts the piece's chunks. A chunk is freed when none of its operations is posted any more. */
void transfer_give_up(struct piece *p);
/* Returns the number of entries in ranks[] that may supply inputs: the members, and a replica
 * holder while the lane reads a copy. */
static inline uint32_t transfer_places(const struct piece *p)
{
    return p->members + (p->parameters && p->parameters->fetched > 0);
}
/* Returns whether the round in progress divides a sum of gradients by the sum of their weights. */
static inline bool transfer_divides(const struct piece *p)
{
    bool is_state = p->parameters && (p->parameters->fetched > 0 || p->parameters->filled > 0);
    return !p->is_copy && !is_state && p->operation && p->operation->divides;
}
/* Returns the number of inputs of the chunk that the member at index `place` supplies. */
static inline uint32_t transfer_inputs(const struct transfer *t, uint32_t place)
{
    bool gives = t->source == OPERATION_EVERYBODY || t->source == place;
    return gives ? t->piece->ranks[place].inputs : 0;
}
static inline bool transfer_takes(const struct transfer *t, uint32_t place)
{
    return t->piece->ranks[place].is_target &&
           (t->target == OPERATION_EVERYBODY || t->target == place) &&
           (t->array == 0 || t->piece->operation->saves);
}

#endif
