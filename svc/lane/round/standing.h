/* Finds the round that a piece opens after another lane has served the piece, or after its ranks
 * have changed, from the standings of its ranks. */
#ifndef GRADPOOL_LANE_ROUND_STANDING_H
#define GRADPOOL_LANE_ROUND_STANDING_H

#include "svc/lane/types.h"

/* Opens the round when all ranks have reported their standing (W5) and no copy has to be read or
 * written first. */
void round_recover(struct piece *p);
/* Handles the report of a rank to a piece whose open round is not known. */
void standing_reported(struct rank *rank);
/* Continues the piece with its open round, or, if that round is not known, with round_recover(). */
void round_resume(struct piece *p);
/* Opens round `committed` + 1: decides the part of each rank in the round, and fails the piece if
 * its state is lost. */
void round_settle(struct piece *p, uint64_t committed);
/* Returns whether a rank's first announcement is possible for a piece whose open round the lane
 * knows. standing_welcome() then handles the announcement. */
bool standing_accepts(const struct piece *p, const struct rank *rank,
                      const struct record_ready *ready);
void standing_welcome(struct rank *rank);
/* Records that the state after round `committed` was read from its copy. */
void standing_fetched(struct piece *p, uint64_t committed);
/* Handles ENTERS: a rank that is new to the piece requests the number of the round after which it
 * enters. */
void standing_enter(struct rank *rank, const struct record_ready *ready);

#endif
