/* The rounds of a piece. */
#ifndef GRADPOOL_LANE_ROUND_ROUND_H
#define GRADPOOL_LANE_ROUND_ROUND_H

#include "svc/lane/types.h"

/* Starts whatever can start now: an answer to late ranks, or the open round. */
void round_go_on(struct piece *p);
/* The rank announced a round that is closed: queues it for an answer. */
void round_answer_late(struct rank *rank, struct announcement *a);
/* No chunk of the piece is in progress any more: all results have landed and COMMIT follows, or the
 * round has failed or was given up. */
void round_chunks_are_over(struct piece *p, bool is_given_up);
/* Gives up the round in progress, which ends once nothing of it is posted; then the piece rests. */
void round_give_up(struct piece *p);
/* Stores the set of ranks of a round (quorum_choose()) and starts the rounds that waited for it.
 * Errors of quorum_choose(). */
int round_choose(struct lane_job *job, const struct record_chosen *chosen);
/* Counts an announcement of the open round, and starts the round if its quorum is complete. */
void round_count(struct rank *rank, struct announcement *a);
/* Gives up the round in progress and begins it again, after a replica holder or a connection was
 * lost. */
void round_interrupt(struct piece *p);
/* The open round is known: ranks that lack its result get it from ranks that hold it, or the round
 * is summed. */
void round_take_up(struct piece *p);
/* Counts announcements of the open round that came before it opened. */
void round_count_early(struct piece *p);
void round_fetch(struct piece *p, uint64_t round); /* reads the state after `round` from its copy */
/* writes the state after `round` to a copy that lacks it */
void round_fill(struct piece *p, uint64_t round);

#endif
