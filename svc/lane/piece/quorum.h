/* Whose announcements make a round of a piece, and who takes part in it. */
#ifndef GRADPOOL_LANE_PIECE_QUORUM_H
#define GRADPOOL_LANE_PIECE_QUORUM_H

#include "svc/lane/types.h"

static inline bool quorum_is_partial(const struct piece *p)
{
    return p->terms.quorum == QUORUM_FIRST || p->terms.quorum == QUORUM_CHOSEN;
}
/* Each rank has a clock of its own, and the piece a running sum. */
static inline bool quorum_is_loose(const struct piece *p)
{
    return p->terms.quorum == QUORUM_STALE || p->terms.quorum == QUORUM_ANY;
}
/* The round that the rank may announce. */
uint64_t quorum_round(const struct piece *p, const struct rank *rank);
/* Of a piece whose ranks have clocks: that of the last. Who has said goodbye holds nobody up. */
uint64_t quorum_slowest_clock(const struct piece *p);
/* What it has said about that round and nothing was made of yet; NULL: nothing. */
struct announcement *quorum_waiting(struct piece *p, struct rank *rank);
bool round_has_quorum(struct piece *p);
bool quorum_takes(struct piece *p, struct rank *rank); /* part in the round that starts now */
/* With those who have left it can never start. `ret_left`: one of them. */
bool quorum_is_hopeless(struct piece *p, uint32_t *ret_left);
bool quorum_was_chosen(const struct piece *p, const struct rank *rank, uint64_t round);
bool quorum_is_stuck(struct piece *p); /* the late wait for a result that needs them */
/* The ranks whose inputs make a round, of all pieces with QUORUM_CHOSEN (W13). 1: they are
 * new, 0: known, or of a round long past. -EPROTO: another set is known, -EINVAL: ranks that the
 * job does not have. */
int quorum_choose(struct lane_job *job, const struct record_chosen *chosen);

#endif
