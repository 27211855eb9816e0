/* Several gradients of one rank in a round of a job with backup workers. While a round waits for
 * slow ranks, a fast rank computes another gradient on the same parameters. A rank announces such a
 * gradient only for the hidden tensor, on the leader lane. RULES.md: A125, A126. */
#ifndef GRADPOOL_LANE_ROUND_GRADIENTS_H
#define GRADPOOL_LANE_ROUND_GRADIENTS_H

#include "svc/lane/types.h"

/* Requests another gradient of the open round from the ranks that the rule has named. */
void gradients_go_on(struct piece *p);
/* Requests the gradient again from a rank that has announced the round over a new connection. */
void gradients_repeat_request(struct rank *rank, struct announcement *a);
/* Returns whether the record announces one more gradient of a round that the rank has announced
 * before, over the same connection. A record with TAKES, which reports that the rank has given up
 * the additional gradient, counts, too. */
bool gradients_are_more(const struct rank *rank, const struct record_ready *ready);
/* Counts the gradient of such a record if its round is open. If the round has closed, only the rule
 * is informed, and the rank gets no answer. Returns whether the gradient counts, so the round may
 * close. */
bool gradients_count(struct rank *rank, const struct record_ready *ready);
/* Fills the set of the round that the leading piece closes. */
void gradients_fill_set(const struct piece *p, struct record_chosen *ret_set);

#endif
