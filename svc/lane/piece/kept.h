/* The results that a piece stores: a ring of the newest ones if its sums follow the sets of a job
 * (A95), otherwise one. */
#ifndef GRADPOOL_LANE_PIECE_KEPT_H
#define GRADPOOL_LANE_PIECE_KEPT_H

#include "svc/lane/types.h"

/* Returns the number of results that `kept` has room for. */
static inline uint64_t kept_room(const struct piece *p)
{
    return p->terms.lag > 0 ? p->terms.lag : 1;
}
/* Returns the stored result of a round. */
static inline char *kept_result(const struct piece *p, uint64_t round)
{
    return p->kept + round % kept_room(p) * piece_bytes(p, p->elements);
}
/* Drops the oldest stored result, because the open round may have overwritten a part of the
 * result. */
static inline void kept_drop_oldest(struct piece *p)
{
    uint64_t first = p->round + 1 > kept_room(p) ? p->round + 1 - kept_room(p) : 1;
    if (p->terms.lag == 0)
        p->kept_from = 0; /* an elastic job may repeat the round of the stored result */
    else if (p->kept_from > 0 && p->kept_from < first)
        p->kept_from = first < p->round ? first : 0;
}

#endif
