/* Copies of states in others' memory (A31, A49). */
#ifndef GRADPOOL_LANE_STATE_REPLICA_H
#define GRADPOOL_LANE_STATE_REPLICA_H

#include "svc/lane/chunk/transfer_types.h"
#include "svc/lane/state/parameters.h"

/* It may have the copy: who is to keep it, or any rank where that is nobody. */
bool replica_may_keep(struct piece *p, const struct worker *w);
/* The copy goes where this one tells, unless another has it. Errors of replica_hear(). */
int replica_accept(struct piece *p, struct worker *w, const struct record_backup *told);
/* An offer of a keeper that is not the one yet is kept; the one of the keeper is taken. */
void replica_hold_offer(struct parameters *q, struct worker *w, const struct record_backup *told);
void replica_take_offer(struct piece *p);
/* It may use the memory otherwise. One that does not hear it keeps that until the job ends. */
void replica_release(const struct piece *p, const struct worker *w);
/* Nobody has it. */
void replica_drop(struct replica *b);
/* Its memory is gone with its connection. */
void replica_forget(struct worker *w);

/* It has not come yet, or again: no round begins before (A49). */
bool replica_is_awaited(const struct piece *p);
/* A round begins: whether it goes there, all of it. */
static inline void replica_take(struct piece *p)
{
    if (p->parameters)
        p->parameters->replica.is_taken = p->parameters->replica.worker != NULL;
}

/* A chunk has been summed: stores what it made of the state, if the copy is mapped. -EFAULT: it was
 * taken back. */
int replica_store(const struct transfer *t);
/* ... or posts the writes of it; may be called again after an error. Returns how many it posted,
 * also where that was not all: `t->replica_next` says what comes next. */
int replica_post(struct transfer *t, uint32_t *ret_posted);

/* Somebody has a copy. */
static inline bool replica_is_kept(const struct piece *p)
{
    return p->parameters && p->parameters->replica.worker;
}

/* The open round is over: a keeper who has had all of it has the state. */
void replica_committed(struct piece *p);

/* It has the state that is committed, and gets each that follows. */
bool replica_is_whole(const struct piece *p);

/* It is known that no copy can have anything of it that is still wanted: it was never set, or has
 * failed. */
bool replica_is_needless(const struct piece *p);

/* Who is to keep it is at hand, and has it where a former owner has sent it (A28). */
bool replica_is_ready(const struct piece *p);

/* A new owner: whether the state after that round is in a copy. */
bool replica_has(const struct piece *p, uint64_t round);
/* A keeper's copy has no round before that one: so it was made of what a lane had committed, whole
 * (round_fill()), for the ranks that the piece has. Rounds that followed would have left the one
 * before in the other half. */
bool replica_begins_with(const struct piece *p, uint64_t round);
/* Its pass takes the state from there; `fetched` is that round. */
void replica_fetch(struct piece *p, uint64_t round);
static inline bool replica_is_fetched(const struct piece *p)
{
    return p->parameters && p->parameters->fetched > 0;
}
/* All of it has come: it is the state that is committed. */
void replica_fetched(struct piece *p);
/* The state after that round is here, and not in the copy that somebody offers to keep. */
bool replica_lacks(struct piece *p, uint64_t round);
/* A pass takes it there; `filled` is that round. */
void replica_fill(struct piece *p, uint64_t round);
static inline bool replica_is_filled(const struct piece *p)
{
    return p->parameters && p->parameters->filled > 0;
}
/* It is there: who has it is told so. */
void replica_filled(struct piece *p);
/* Who has the copy hears what lies behind the state after that round. */
void replica_tell(struct piece *p, uint64_t round);
/* The piece has other ranks: a copy stays with who is still among them. */
void replica_carry_over(struct piece *p);

/* Where in the copy the chunk's input lies. */
uint64_t replica_offset(const struct transfer *t);

void replica_free(struct piece *p);

#endif
