/* Recording of sets, on the leader lane of a job with backup workers (W32). The lane sends rank 0,
 * in this order, the set of each closed round, and each straggler that begins its next gradient
 * with the round after which the straggler begins. RULES.md: A116. */
#ifndef GRADPOOL_LANE_PIECE_RECORDING_H
#define GRADPOOL_LANE_PIECE_RECORDING_H

#include "svc/lane/types.h"

/* Creates the recording of a piece that leads the rounds of its job. Returns 0 or -ENOMEM. */
int recording_create(struct piece *p);
void recording_free(struct piece *p);
/* Returns whether the sets of the piece are recorded. */
bool recording_is_here(const struct piece *p);

/* The functions below have no effect on a piece without a recording. */

/* Notes that a rank outside a set begins its next gradient with the results of `round`. The rank
 * has no older note that is not sent: see recording_answers(). */
void recording_begins(const struct rank *rank, uint64_t round);
/* Sends rank 0 what is not sent yet, as far as the send queue has room. Otherwise the piece waits
 * for a short time (waits.h), after which the caller calls again. */
void recording_send(struct piece *p);
/* Returns whether the open round must not close yet, because its set would replace a set that is
 * not sent yet. */
bool recording_is_behind(const struct piece *p);
/* Returns whether a rank outside a set may get an answer: no note of the rank has to be sent. */
bool recording_answers(const struct rank *rank);

#endif
