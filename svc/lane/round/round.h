/* The rounds of a piece. */
#ifndef GRADPOOL_LANE_ROUND_ROUND_H
#define GRADPOOL_LANE_ROUND_ROUND_H

#include "svc/lane/types.h"

/* Starts the work of the piece that is possible now: answers to late ranks, a copy of the state, or
 * the open round. */
void round_go_on(struct piece *p);
/* Handles the announcement of a round that is already closed. This lane answers the rank, unless
 * the leader lane sends the answer. */
void round_answer_late(struct rank *rank, struct announcement *a);
/* Fails the piece if late ranks wait for a result that was lost with its lane, and the other ranks
 * are too few for a further round. */
void round_fail_stuck(struct piece *p);
/* Like round_fail_stuck(), but does nothing while a later round may still give late ranks a result.
 * Called after a rank has become late or has left. */
void round_check_late(struct piece *p);
/* Returns whether the open round can never start, because a rank that it needs has left.
 * `ret_left`: this rank. */
bool round_is_hopeless(struct piece *p, uint32_t *ret_left);
/* Handles LANDED of a rank outside a set, for a piece that leads the rounds of its job, and answers
 * the rank. The results of `round` have landed in the rank's memory; RECORD_ROUND_NONE: a lane no
 * longer had the results. */
void round_landed(struct rank *rank, uint64_t round);
/* Ends a round without chunks in progress. If all results have landed, COMMIT follows. A round that
 * was given up, or whose piece has failed, ends without COMMIT; an interrupted round begins
 * again. */
void round_chunks_are_over(struct piece *p, bool is_given_up);
/* Gives up the round in progress. The round ends when none of its operations is posted. */
void round_give_up(struct piece *p);
/* Stores the set of ranks of a round (quorum_choose()), and starts the rounds that waited for the
 * set. Returns the result of quorum_choose(). */
int round_choose(struct lane_job *job, const struct record_chosen *chosen);
/* Counts an announcement of the open round, and starts the round if its quorum is complete. An
 * announcement that contradicts the others fails the piece. */
void round_count(struct rank *rank, struct announcement *a);
/* Gives up the round in progress and begins it again, because a replica holder or a connection was
 * lost. */
void round_interrupt(struct piece *p);
/* Continues with the open round after standing.c has found it: ranks without the result get a copy
 * from ranks that have it, or the lane sums the round. */
void round_take_up(struct piece *p);
/* Counts the announcements of the open round that have arrived before the round opened. */
void round_count_early(struct piece *p);
/* Reads the state after `round` from its copy. */
void round_fetch(struct piece *p, uint64_t round);
/* Writes the state after `round` to the replica holder, whose copy lacks this state. */
void round_fill(struct piece *p, uint64_t round);

#endif
