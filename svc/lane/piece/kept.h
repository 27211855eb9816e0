/* The results that a piece stores. A piece whose sums use the sets of the job's rounds (A95) has a
 * ring of its newest results; any other piece stores one result. A piece that sends its result to
 * late ranks has a second area, so that a round does not overwrite a result that a late rank is
 * receiving (A16). */
#ifndef GRADPOOL_LANE_PIECE_KEPT_H
#define GRADPOOL_LANE_PIECE_KEPT_H

#include "svc/lane/types.h"

/* Bits of kept_use. With KEPT_SECOND the open round writes its result to the second area of `kept`,
 * otherwise to the first. With KEPT_BOTH the other area contains the result of the previous
 * round. */
#define KEPT_SECOND 1u
#define KEPT_BOTH 2u

/* Returns the number of results that the piece stores for late ranks. These results also move with
 * the piece. */
static inline uint64_t kept_room(const struct piece *p)
{
    return p->terms.lag > 0 ? p->terms.lag : 1;
}
static inline bool kept_has_spare(const struct lane_terms *terms)
{
    bool is_partial = terms->quorum == QUORUM_FIRST || terms->quorum == QUORUM_CHOSEN;
    return is_partial && terms->lag == 0 && !terms->rule;
}
/* Returns the number of results for which `kept` has memory. */
static inline uint64_t kept_areas(const struct lane_terms *terms)
{
    return (terms->lag > 0 ? terms->lag : 1) + kept_has_spare(terms);
}
/* Returns the bytes of `kept` for a piece of this length; 0: the terms need no stored results, or
 * the piece has parameters instead. */
static inline uint64_t kept_bytes(const struct lane_terms *terms, uint64_t piece_bytes)
{
    bool stores = terms->quorum != QUORUM_ALL && !terms->rule;
    return stores ? kept_areas(terms) * piece_bytes : 0;
}
/* Returns whether the piece sends its newest stored result to late ranks. A piece whose rounds use
 * the job's sets sends the result of the round that the rank requests. */
static inline bool kept_is_answer(const struct piece *p)
{
    return kept_has_spare(&p->terms) && p->kept && p->job->servings;
}
/* Returns the stored result of a round. Without a ring, returns the area that the open round
 * writes. */
static inline char *kept_result(const struct piece *p, uint64_t round)
{
    uint64_t place = (p->kept_use & KEPT_SECOND) + round % kept_room(p);
    return p->kept + place * piece_bytes(p, p->elements);
}
/* Returns the area that kept_result() does not return. The piece must have two areas
 * (kept_is_answer()). */
static inline char *kept_other(const struct piece *p)
{
    return p->kept + (1 - (p->kept_use & KEPT_SECOND)) * piece_bytes(p, p->elements);
}
/* Returns the whole result of the newest closed round. NULL: there is no such result, or the round
 * in progress overwrites it, or late ranks receive no result of this piece. */
static inline const char *kept_newest(const struct piece *p)
{
    if (!kept_is_answer(p) || p->kept_from == 0 || p->round == 0)
        return NULL;
    if (p->state == PIECE_COLLECTING)
        return kept_result(p, p->round - 1);
    return p->kept_use & KEPT_BOTH ? kept_other(p) : NULL;
}
/* Drops the oldest stored result, because the open round may have overwritten a part of the
 * result. */
static inline void kept_drop_oldest(struct piece *p)
{
    uint64_t first = p->round + 1 > kept_room(p) ? p->round + 1 - kept_room(p) : 1;
    if (p->terms.lag == 0)
        /* an elastic job may repeat the round of the stored result, so this result is not
         * valid */
        p->kept_from = 0;
    else if (p->kept_from > 0 && p->kept_from < first)
        p->kept_from = first < p->round ? first : 0;
}

#endif
