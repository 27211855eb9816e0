/* Recording of sets, on the leader lane of a job with backup workers (W32). The lane sends rank 0
 * the set of each closed round, in order. If a straggler begins its next gradient, the lane also
 * sends rank 0 a note with the straggler and the round after which the straggler begins. RULES.md:
 * A116. */
#ifndef GRADPOOL_LANE_PIECE_RECORDING_H
#define GRADPOOL_LANE_PIECE_RECORDING_H

#include "svc/lane/types.h"

/* Creates the recording of a piece that leads the rounds of its job. Returns 0 or -ENOMEM. */
int recording_create(struct piece *p);
void recording_free(struct piece *p);
/* Returns whether the sets of the piece are recorded. */
bool recording_is_here(const struct piece *p);

/* The functions below have no effect on a piece without a recording. */

/* Stores a note: a rank outside a set begins its next gradient with the results of `round`. All
 * older notes of the rank must be sent already: see recording_answers(). */
void recording_begins(const struct rank *rank, uint64_t round);
/* Sends rank 0 the unsent sets and notes, as far as the send queue has room. If some are still
 * unsent, the piece waits for a short time (waits.h), and the caller then calls again. */
void recording_send(struct piece *p);
/* Returns whether the open round must not close yet, because its set would replace an unsent
 * set. */
bool recording_is_behind(const struct piece *p);
/* Returns whether a rank outside a set may get an answer, because no note of this rank is
 * unsent. */
bool recording_answers(const struct rank *rank);

#endif
