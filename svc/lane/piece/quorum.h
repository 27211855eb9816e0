/* The quorum function: which announcements make a round of a piece, and which ranks take part.
 * Reads the state of pieces and changes none. */
#ifndef GRADPOOL_LANE_PIECE_QUORUM_H
#define GRADPOOL_LANE_PIECE_QUORUM_H

#include "svc/lane/types.h"

static inline bool quorum_is_partial(const struct piece *p)
{
    return p->terms.quorum == QUORUM_FIRST || p->terms.quorum == QUORUM_CHOSEN;
}
/* True when each rank has a clock of its own, and the piece a running sum. */
static inline bool quorum_is_loose(const struct piece *p)
{
    return p->terms.quorum == QUORUM_STALE || p->terms.quorum == QUORUM_ANY;
}
/* The round that the rank may announce next. */
uint64_t quorum_round(const struct piece *p, const struct rank *rank);
/* The lowest clock of the ranks; ranks that have left do not count. UINT64_MAX: all have left. */
uint64_t quorum_slowest_clock(const struct piece *p);
/* The rank's announcement of that round, if no round has taken or answered it; NULL: none. */
struct announcement *quorum_waiting(struct piece *p, struct rank *rank);
bool round_has_quorum(struct piece *p);
/* true: the rank takes part in a round that starts now */
bool quorum_takes(struct piece *p, struct rank *rank);
/* True when the open round can never start without the ranks that have left. `ret_left`: one of
 * these. */
bool quorum_is_hopeless(struct piece *p, uint32_t *ret_left);
/* True when the rank is in the known set of `round`: its landing area holds the result (W4). */
bool quorum_was_chosen(const struct piece *p, const struct rank *rank, uint64_t round);
/* late ranks wait for a lost result that no round without them can replace */
bool quorum_is_stuck(struct piece *p);
/* Stores the set of ranks of a round, for all pieces with QUORUM_CHOSEN (W13). 1: the set is new;
 * 0: known, or of a round long past. -EPROTO: another set is known for the round; -EINVAL:
 * ranks that the job does not have. */
int quorum_choose(struct lane_job *job, const struct record_chosen *chosen);

#endif
