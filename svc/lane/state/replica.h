/* Copies of states in the memory of workers or of other aggregators, the replica holders (A31,
 * A49). */
#ifndef GRADPOOL_LANE_STATE_REPLICA_H
#define GRADPOOL_LANE_STATE_REPLICA_H

#include "svc/lane/chunk/transfer_types.h"
#include "svc/lane/state/parameters.h"

/* True when this worker may store the copy: the named aggregator, or any rank of the piece if none
 * is named. */
bool replica_may_keep(struct piece *p, const struct worker *w);
/* Places the copy where `told` says, unless another holder has a copy that is at least as good.
 * Errors of replica_hear(). */
int replica_accept(struct piece *p, struct worker *w, const struct record_backup *told);
/* replica_hold_offer() stores an offer of an aggregator that is not the holder (yet);
 * replica_take_offer() accepts the stored offer of the holder. */
void replica_hold_offer(struct parameters *q, struct worker *w, const struct record_backup *told);
void replica_take_offer(struct piece *p);
/* Tells a former holder that the copy's memory is free; no effect for NULL and for workers. A
 * holder that misses the message keeps the memory until the job ends. */
void replica_release(const struct piece *p, const struct worker *w);
/* Forgets the holder: there is no copy. */
void replica_drop(struct replica *b);
/* The worker's connection has ended, and its memory with it: forgets its copies and offers. */
void replica_forget(struct worker *w);

/* True while the named replica holder is not connected: no round begins (A49). */
bool replica_is_awaited(const struct piece *p);
/* A round begins: decides whether its whole state is written to the copy. */
static inline void replica_take(struct piece *p)
{
    if (p->parameters)
        p->parameters->replica.is_taken = p->parameters->replica.worker != NULL;
}

/* A chunk has been summed: stores its part of the new state to a mapped copy; no effect for
 * one that is not mapped. -EFAULT: the memory was taken back. */
int replica_store(const struct transfer *t);
/* Posts the writes of that part to a copy that is not mapped. May be called again after an
 * error: `t->replica_next` is the next array. `ret_posted`: writes posted by this call, also on
 * an error. */
int replica_post(struct transfer *t, uint32_t *ret_posted);

/* True when the piece has a copy. */
static inline bool replica_is_kept(const struct piece *p)
{
    return p->parameters && p->parameters->replica.worker;
}

/* The open round is committed: a replica holder that got all of it has the state from this round
 * on. */
void replica_committed(struct piece *p);

/* True when the copy has the committed state, and gets each that follows. */
bool replica_is_whole(const struct piece *p);

/* True when the lane knows that no copy can have a state of use: none was ever set, or the piece
 * has failed. */
bool replica_is_needless(const struct piece *p);

/* True when the named replica holder is connected, and has the state if a former owner has sent it
 * here (A28). */
bool replica_is_ready(const struct piece *p);

/* At a new owner: true when the copy has the state after that round. */
bool replica_has(const struct piece *p, uint64_t round);
/* True when a replica holder's copy has this round and none before, made by the present ranks. Then
 * the copy was written whole from a committed state (round_fill()): a round that followed would
 * have left the one before in the other half. */
bool replica_begins_with(const struct piece *p, uint64_t round);
/* The next pass reads the state after `round` from the copy (`fetched`). */
void replica_fetch(struct piece *p, uint64_t round);
static inline bool replica_is_fetched(const struct piece *p)
{
    return p->parameters && p->parameters->fetched > 0;
}
/* The whole state has been read, and is the committed one. */
void replica_fetched(struct piece *p);
/* True when this lane has the state after that round, and the copy's place does not. */
bool replica_lacks(struct piece *p, uint64_t round);
/* The next pass writes the state after `round` to the copy (`filled`). */
void replica_fill(struct piece *p, uint64_t round);
static inline bool replica_is_filled(const struct piece *p)
{
    return p->parameters && p->parameters->filled > 0;
}
/* The whole state has been written: sends BACKED to the holder. */
void replica_filled(struct piece *p);
/* Sends BACKED to the holder: the copy has the state after `round`. */
void replica_tell(struct piece *p, uint64_t round);
/* The piece has other ranks now: forgets a copy in the memory of a rank that is not among them. */
void replica_carry_over(struct piece *p);

/* Offset of the chunk's input in the copy that is being read. */
uint64_t replica_offset(const struct transfer *t);

void replica_free(struct piece *p);

#endif
