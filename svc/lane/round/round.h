/* The rounds of a piece. */
#ifndef GRADPOOL_LANE_ROUND_ROUND_H
#define GRADPOOL_LANE_ROUND_ROUND_H

#include "svc/lane/types.h"

/* Starts what can start now: an answer to late ranks, or the open round. */
void round_go_on(struct piece *p);
/* Handles the announcement of a round that is already closed: an answer will be sent. */
void round_answer_late(struct rank *rank, struct announcement *a);
/* Handles the report of a rank outside a set: the results that it takes have landed, or are gone
 * (RECORD_ROUND_NONE). The piece leads the rounds of its job. An answer will be sent. */
void round_landed(struct rank *rank, uint64_t round);
/* No chunk of the piece is in progress any more. Either all results have landed, and COMMIT
 * follows, or the round has failed or was given up. */
void round_chunks_are_over(struct piece *p, bool is_given_up);
/* Gives up the round in progress. The round ends when none of its operations is posted; then the
 * piece rests. */
void round_give_up(struct piece *p);
/* Stores the set of ranks of a round (quorum_choose()), and starts the rounds that waited for it.
 * Errors of quorum_choose(). */
int round_choose(struct lane_job *job, const struct record_chosen *chosen);
/* Counts an announcement of the open round, and starts the round if its quorum is complete. */
void round_count(struct rank *rank, struct announcement *a);
/* Gives up the round in progress and begins it again, because a replica holder or a connection was
 * lost. */
void round_interrupt(struct piece *p);
/* Continues with the open round, which is known now: ranks without its result get it from
 * ranks that have it, or the round is summed. */
void round_take_up(struct piece *p);
/* Counts announcements of the open round that arrived before it opened. */
void round_count_early(struct piece *p);
/* Reads the state after `round` from its copy. */
void round_fetch(struct piece *p, uint64_t round);
/* Writes the state after `round` to a copy that does not have it. */
void round_fill(struct piece *p, uint64_t round);

#endif
