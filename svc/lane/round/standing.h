/* Standings: find out which round is open, for a piece that was served elsewhere or for other
 * ranks. */
#ifndef GRADPOOL_LANE_ROUND_STANDING_H
#define GRADPOOL_LANE_ROUND_STANDING_H

#include "svc/lane/types.h"

/* Opens the round when all ranks have reported their standing (W5) and no copy has to be read or
 * written first. */
void round_recover(struct piece *p);
/* Continues the piece: with its open round, or with finding out which round that is. */
void round_resume(struct piece *p);
/* Opens round `committed` + 1: decides the place of each rank in it, and fails the piece if state
 * is lost. */
void round_settle(struct piece *p, uint64_t committed);
/* Checks a rank's first announcement of a piece whose rounds the lane knows. standing_welcome()
 * handles it afterwards. */
bool standing_accepts(const struct piece *p, const struct rank *rank,
                      const struct record_ready *ready);
void standing_welcome(struct rank *rank);
/* Continues after the state was read from its copy. */
void standing_fetched(struct piece *p, uint64_t committed);
/* Handles ENTERS: a rank that is new to the piece requests the round after which it enters. */
void standing_enter(struct rank *rank, const struct record_ready *ready);

#endif
