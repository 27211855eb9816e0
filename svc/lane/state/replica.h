/* Copies of states in the memory of workers or of other aggregators, called replica holders (A31,
 * A49). */
#ifndef GRADPOOL_LANE_STATE_REPLICA_H
#define GRADPOOL_LANE_STATE_REPLICA_H

#include "svc/lane/chunk/transfer_types.h"
#include "svc/lane/state/parameters.h"

/* Returns whether this worker may store the copy: the aggregator that the coordinator has named, or
 * any rank of the piece if no aggregator is named. */
bool replica_may_keep(struct piece *p, const struct worker *w);
/* Uses the memory that `told` offers for the copy, unless another holder already has a copy that is
 * at least as new. Returns an error of replica_hear(). */
int replica_accept(struct piece *p, struct worker *w, const struct record_backup *told);
/* replica_hold_offer() stores the offer of an aggregator that the coordinator has not named yet.
 * replica_take_offer() accepts a stored offer of the named holder. */
void replica_hold_offer(struct parameters *q, struct worker *w, const struct record_backup *told);
void replica_take_offer(struct piece *p);
/* Sends a former holder the message that it may free the copy. Does nothing for NULL and for
 * workers. A holder that does not receive the message keeps the memory until the job ends. */
void replica_release(const struct piece *p, const struct worker *w);
/* Forgets the holder; afterwards the piece has no copy. */
void replica_drop(struct replica *b);
/* Drops the worker's copies and offers, because its connection has ended and its memory is no
 * longer accessible. */
void replica_forget(struct worker *w);

/* Returns whether the named replica holder is not connected, so that no round may begin (A49). */
bool replica_is_awaited(const struct piece *p);
/* Decides at the start of a round whether the complete new state of the round is written to the
 * copy. */
static inline void replica_take(struct piece *p)
{
    if (p->parameters)
        p->parameters->replica.is_taken = p->parameters->replica.worker != NULL;
}

/* Stores the chunk's part of the new state in the copy, if the copy is mapped. Called after the
 * chunk is summed. Returns 0, or -EFAULT if the memory was unmapped. */
int replica_store(const struct transfer *t);
/* Posts the writes of the chunk's part of the new state, if the copy is not mapped. After an error
 * the call may be repeated; `t->replica_next` is the next array. `ret_posted`: number of writes
 * posted by this call, even if the call fails. */
int replica_post(struct transfer *t, uint32_t *ret_posted);

/* Returns whether the piece has a copy. */
static inline bool replica_is_kept(const struct piece *p)
{
    return p->parameters && p->parameters->replica.worker;
}

/* Called when the open round is committed. If a replica holder has received the whole state of the
 * round, the copy at this holder is valid from this round on. */
void replica_committed(struct piece *p);

/* Returns whether the copy has the committed state, and will receive the states of all later
 * rounds. */
bool replica_is_whole(const struct piece *p);

/* Returns whether no copy can contain a useful state, because no state was ever set, or because the
 * piece has failed. */
bool replica_is_needless(const struct piece *p);

/* Returns whether the named replica holder is connected. If a former owner has sent a state to this
 * lane, the holder must also have a copy of this state (A28). */
bool replica_is_ready(const struct piece *p);

/* Returns on a new owner whether the copy has the state after `round`. */
bool replica_has(const struct piece *p, uint64_t round);
/* Returns whether a replica holder's copy contains the state after this round, for the present
 * ranks, and no state of an earlier round. Such a copy was written from a committed state, between
 * rounds (round_fill()). After one more round, both halves would contain a state. */
bool replica_begins_with(const struct piece *p, uint64_t round);
/* Makes the next pass read the state after `round` from the copy (`fetched`). */
void replica_fetch(struct piece *p, uint64_t round);
static inline bool replica_is_fetched(const struct piece *p)
{
    return p->parameters && p->parameters->fetched > 0;
}
/* Called when the complete state was read. This state is now the committed state. */
void replica_fetched(struct piece *p);
/* Returns whether this lane has the state after `round`, and the copy does not. */
bool replica_lacks(struct piece *p, uint64_t round);
/* Makes the next pass write the state after `round` to the copy (`filled`). */
void replica_fill(struct piece *p, uint64_t round);
static inline bool replica_is_filled(const struct piece *p)
{
    return p->parameters && p->parameters->filled > 0;
}
/* Called when the complete state was written. Sends BACKED to the holder. */
void replica_filled(struct piece *p);
/* Sends BACKED to the holder: the copy has the state after `round`. */
void replica_tell(struct piece *p, uint64_t round);
/* Drops the copy after a change of ranks, if it is in the memory of a worker that is no longer a
 * rank of the piece. */
void replica_carry_over(struct piece *p);

/* Returns the offset of the chunk's input in the copy that is being read. */
uint64_t replica_offset(const struct transfer *t);

void replica_free(struct piece *p);

#endif
