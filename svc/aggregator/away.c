/* Deadlines of workers that may connect to a lane again. Lanes have no timers (A8), so the control
 * thread checks the deadlines, with or without a coordinator. svc/lane/RULES.md: A70. */
#include "svc/aggregator/internal.h"
#include "svc/base/clock.h"
#include "svc/lane/hear/replace.h"

static int expire(struct lane *lane, void *context)
{
    uint64_t *next_ns = context;
    uint64_t lane_ns = lane_expire_away(lane, clock_now_ns());
    if (lane_ns > 0 && (*next_ns == 0 || lane_ns < *next_ns))
        *next_ns = lane_ns;
    return 0;
}

void away_look(struct aggregator *a, bool has_news)
{
    bool is_due = a->away_due_ns > 0 && clock_now_ns() >= a->away_due_ns;
    if (!has_news && !is_due)
        return;
    a->away_due_ns = 0;
    for (size_t i = 0; i < a->lanes_count; i++)
        lane_thread_call(a->lanes[i], expire, &a->away_due_ns);
}

int away_timeout_ms(const struct aggregator *a)
{
    return a->away_due_ns > 0 ? clock_poll_ms(a->away_due_ns, clock_now_ns()) : -1;
}
