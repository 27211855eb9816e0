/* Planned end of this process. After a signal the remaining time is sent to the coordinator. The
 * coordinator moves tasks and state to other aggregators, and then sends a DrainRequest. Owns the
 * deadline, at which the process ends in any case. A second signal ends the process at once.
 * svc/lane/RULES.md: A71. */
#include "svc/aggregator/internal.h"
#include "svc/base/clock.h"
#include "svc/base/log.h"

#include <signal.h>

/* a tenth of the remaining time is reserved for the last rounds and for the Goodbye */
#define RESERVE_PART 10
#define RESERVE_MOST_NS NS_PER_S

static bool is_leaving(const struct aggregator *a) { return a->leave_by_ns > 0; }

/* Returns whether the process has pieces or copies. A process without pieces and copies need not
 * wait for an absent coordinator. */
static bool has_anything(struct aggregator *a)
{
    Gradpool__Wire__PieceHeld **rows = NULL;
    size_t count = 0;
    if (keeping_is_used(a) || serve_held(a, &rows, &count) < 0)
        return true;
    serve_held_free(rows, count);
    return count > 0;
}

static void begin(struct aggregator *a)
{
    uint64_t timeout_ns = a->options->leave_timeout_ns;
    if (timeout_ns == 0 || (!a->channel && !has_anything(a))) {
        a->is_draining = true;
        return;
    }
    a->leave_by_ns = clock_now_ns() + timeout_ns;
    log_info("tasks and state move to other aggregators, within %.0f s; a second signal ends this "
             "aggregator at once",
             (double)timeout_ns / NS_PER_S);
    (void)leaving_tell(a); /* after an error the next receive detects the broken channel */
}

/* Begins the planned end at the first signal, and ends the process at the second signal. A repeated
 * SIGHUP does not count, because a closing terminal may send SIGHUP twice. */
void leaving_signal(struct aggregator *a, uint32_t number)
{
    log_info("signal %u: %s", number,
             is_leaving(a) ? "this aggregator is ending already" : "this aggregator begins to end");
    if (!is_leaving(a))
        begin(a);
    else if (number != SIGHUP)
        a->is_draining = true;
}

int leaving_tell(struct aggregator *a)
{
    uint64_t now_ns = clock_now_ns();
    if (!is_leaving(a) || !a->channel || now_ns >= a->leave_by_ns)
        return 0;
    uint64_t left_ns = a->leave_by_ns - now_ns, reserve_ns = left_ns / RESERVE_PART;
    left_ns -= reserve_ns < RESERVE_MOST_NS ? reserve_ns : RESERVE_MOST_NS;
    return serve_answer(a, 0, AGGREGATOR_ENDING, aggregator_ending, .left_ms = left_ns / NS_PER_MS);
}

int leaving_timeout_ms(const struct aggregator *a)
{
    return is_leaving(a) ? clock_poll_ms(a->leave_by_ns, clock_now_ns()) : -1;
}

void leaving_check(struct aggregator *a)
{
    if (!is_leaving(a) || a->is_draining || clock_now_ns() < a->leave_by_ns)
        return;
    log_warn("the coordinator has not answered within --leave-timeout (%.0f s): the remaining "
             "tasks of this aggregator end with its process",
             (double)a->options->leave_timeout_ns / NS_PER_S);
    a->is_draining = true;
}

uint64_t leaving_deadline_ns(const struct aggregator *a, uint64_t deadline_ns)
{
    return is_leaving(a) && a->leave_by_ns < deadline_ns ? a->leave_by_ns : deadline_ns;
}
