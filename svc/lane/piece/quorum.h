/* Quorum: which announcements complete the set of a round, and which ranks take part. Only
 * quorum_learn() and quorum_choose() change anything; all other functions only read pieces. */
#ifndef GRADPOOL_LANE_PIECE_QUORUM_H
#define GRADPOOL_LANE_PIECE_QUORUM_H

#include "svc/lane/types.h"

static inline bool quorum_is_partial(const struct piece *p)
{
    return p->terms.quorum == QUORUM_FIRST || p->terms.quorum == QUORUM_CHOSEN;
}
/* Returns whether each rank has its own clock and the piece has a running sum. */
static inline bool quorum_is_loose(const struct piece *p)
{
    return p->terms.quorum == QUORUM_STALE || p->terms.quorum == QUORUM_ANY;
}
/* Returns the number of the job's round that corresponds to a round of the piece; 0: unknown. In a
 * piece with FOLLOWS_ROUNDS, some rounds are not rounds of the job. For such a round the function
 * returns the number of the job's next round. */
static inline uint64_t quorum_job_round(const struct piece *p, uint64_t round)
{
    if (!piece_follows(p))
        return round;
    return p->job_round > 0 ? p->job_round + round - p->round : 0;
}
/* Returns whether a round of the piece with this operation is a round of the job, with the set of
 * the job's round. */
static inline bool quorum_follows(const struct piece *p, const struct operation *operation)
{
    if (!piece_follows(p) || !operation)
        return false;
    return p->terms.rule ? operation->updates : operation_is_reduction(operation);
}
/* Returns whether the open round of a piece with FOLLOWS_ROUNDS needs all ranks. */
static inline bool quorum_is_whole(const struct piece *p)
{
    return piece_follows(p) && p->operation && !quorum_follows(p, p->operation);
}
/* If the number of the job's open round is unknown, sets this number from an announcement of that
 * round. The field `root` of the announcement contains the low half of the number. */
void quorum_learn(struct piece *p, const struct operation *operation, uint32_t root);
/* Returns the round that the rank may announce next. */
uint64_t quorum_round(const struct piece *p, const struct rank *rank);
/* Returns the lowest clock of the ranks, except ranks that have left. UINT64_MAX: all ranks have
 * left. */
uint64_t quorum_slowest_clock(const struct piece *p);
/* Returns the rank's announcement of the round quorum_round() if no round has used this
 * announcement and no message has answered it, otherwise NULL. */
struct announcement *quorum_waiting(struct piece *p, struct rank *rank);
bool round_has_quorum(struct piece *p);
/* Returns whether the rank takes part in a round that starts now. */
bool quorum_takes(struct piece *p, struct rank *rank);
/* Returns whether the open round can never start, because ranks that it needs have left.
 * `ret_left`: one of these ranks. */
bool quorum_is_hopeless(struct piece *p, uint32_t *ret_left);
/* Returns whether the rank is in the set of `round`, as far as the set is known. Such a rank has
 * the result in its output area (W4). */
bool quorum_was_chosen(const struct piece *p, const struct rank *rank, uint64_t round);
/* Returns the number of gradients of the rank in the open round (A125). The rank takes part. */
uint32_t quorum_gradients(const struct piece *p, const struct rank *rank);
/* Returns whether late ranks wait for a result that is lost, and the other ranks are too few to
 * compute another result. */
bool quorum_is_stuck(struct piece *p);
/* Returns whether the lane knows which ranks, or how many ranks, the next round needs. QUORUM_FIRST
 * sets the number. QUORUM_CHOSEN needs the set of the round, unless all ranks are late or have
 * left. */
bool quorum_next_is_known(const struct piece *p);
/* Stores the set of ranks of a round for all pieces with QUORUM_CHOSEN (W13). Returns 1 if the set
 * is new, or 0 if the set is known or its round is too old. -EPROTO: another set of the round is
 * known. -EINVAL: the set has ranks that the job does not have, or too many gradients of a rank. */
int quorum_choose(struct lane_job *job, const struct record_chosen *chosen);

#endif
