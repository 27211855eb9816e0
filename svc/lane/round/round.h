/* The rounds of a piece. */
#ifndef GRADPOOL_LANE_ROUND_ROUND_H
#define GRADPOOL_LANE_ROUND_ROUND_H

#include "svc/lane/types.h"

/* Starts what can be started now: an answer to the late, or the open round. */
void round_go_on(struct piece *p);
/* The rank announced a round that is closed. */
void round_answer_late(struct rank *rank, struct announcement *a);
/* No chunk of the piece is under way any more: its results lie in all landing areas, and COMMIT
 * follows; or its round has failed, or was given up. */
void round_chunks_are_over(struct piece *p, bool is_given_up);
/* What is under way is given up: it ends once nothing of it is posted, and the piece rests. */
void round_give_up(struct piece *p);
/* The ranks whose inputs make a round of pieces with QUORUM_CHOSEN: such rounds go on. Errors of
 * quorum_choose(). */
int round_choose(struct lane_job *job, const struct record_chosen *chosen);
/* An announcement of the open round counts. */
void round_count(struct rank *rank, struct announcement *a);
/* The round begins again with whoever is there then: another keeper, another connection. */
void round_interrupt(struct piece *p);
/* The open round is known, and whether ranks hold its result already: the rest get that. */
void round_take_up(struct piece *p);
/* Announcements of the open round that were here before it opened count, too. */
void round_count_early(struct piece *p);
void round_fetch(struct piece *p, uint64_t round); /* the state after it comes from its copy, ... */
void round_fill(struct piece *p, uint64_t round);  /* ... or goes to one that lacks it */

#endif
