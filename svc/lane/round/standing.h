/* Where rounds stand that began elsewhere, or for other ranks. */
#ifndef GRADPOOL_LANE_ROUND_STANDING_H
#define GRADPOOL_LANE_ROUND_STANDING_H

#include "svc/lane/types.h"

/* Opens the round when all workers have said theirs (W5). */
void round_recover(struct piece *p);
/* The piece goes on where it stands: with its open round, or on the way to know it. */
void round_resume(struct piece *p);
void round_settle(struct piece *p, uint64_t committed);
/* What a rank says first of a piece that was installed: whether it can be, and what comes of it. */
bool standing_accepts(const struct piece *p, const struct rank *rank,
                      const struct record_ready *ready);
void standing_welcome(struct rank *rank);
void standing_fetched(struct piece *p, uint64_t committed); /* its state, from a copy */
/* A rank that is new to the piece asks which round it comes after (ENTERS). */
void standing_enter(struct rank *rank, const struct record_ready *ready);

#endif
