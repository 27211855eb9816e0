/* Waits of pieces, each with an end time. A piece waits for ranks that receive a result (A87), or
 * for the next decision of a rule (A96). The end of a wait also ends the sleep of the lane (A8). */
#ifndef GRADPOOL_LANE_PIECE_WAITS_H
#define GRADPOOL_LANE_PIECE_WAITS_H

#include "svc/lane/types.h"

struct lane_wait {
    struct lane_wait *next; /* in lane.waits */
    struct piece *piece;
    uint64_t until_ns; /* end of the wait; 0: none */
};

/* Removes the wait from the list. `until_ns` stays. */
static inline void wait_unlist(struct lane_wait *w)
{
    struct lane_wait **at = &w->piece->job->lane->waits;
    while (*at && *at != w)
        at = &(*at)->next;
    if (*at)
        *at = w->next;
}
static inline void wait_stop(struct lane_wait *w)
{
    wait_unlist(w);
    w->until_ns = 0;
}
/* Starts a wait that is not in the list. */
static inline void wait_start(struct lane_wait *w, uint64_t until_ns)
{
    struct lane *lane = w->piece->job->lane;
    w->until_ns = until_ns;
    w->next = lane->waits;
    lane->waits = w;
}

/* Returns a piece whose wait has ended, and removes the wait from the list. NULL: no wait has
 * ended. */
static inline struct piece *waits_due(struct lane *lane)
{
    for (struct lane_wait *w = lane->waits; w; w = w->next) {
        if (w->until_ns > lane->now_ns)
            continue;
        wait_unlist(w);
        return w->piece;
    }
    return NULL;
}
/* Returns the end of the first wait on this lane; 0: no piece waits. */
static inline uint64_t waits_next_ns(const struct lane *lane)
{
    uint64_t next_ns = 0;
    for (const struct lane_wait *w = lane->waits; w; w = w->next)
        next_ns = next_ns == 0 || w->until_ns < next_ns ? w->until_ns : next_ns;
    return next_ns;
}

#endif
