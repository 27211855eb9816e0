/* Pings to aggregators. Owns the timer of the pings. An answer needs a turn of the control thread
 * and of each lane of an aggregator, so the aggregator counts as silent if one of its threads is
 * blocked. Time does not count as silence while this process did not run, or while an answer was
 * unread in the socket (K14). */
#include "svc/coordinator/aggregator/ping.h"

#include "svc/base/log.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/view/display.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#define PERIODS 3 /* number of silent periods after which an aggregator is treated as hung */
/* Number of silent periods after which a local aggregator is treated as hung, if all aggregators
 * are local. Pings are then less frequent, because waking threads for pings is most of the cost of
 * an idle service. */
#define PERIODS_LOCAL 6

struct pings {
    struct service *service;
    struct timer timer;
    uint64_t period_ns; /* length of the current period */
};

static bool has_own_limit(const struct aggregator *a)
{
    return a->process.fd >= 0 && a->service->options->local_timeout_ns > 0;
}

static uint64_t period_ns(const struct service *s)
{
    uint64_t period_ns = s->options->aggregator_timeout_ns / PERIODS;
    uint64_t local_ns = s->options->local_timeout_ns / PERIODS_LOCAL;
    list_for_each_entry (const struct aggregator, a, &s->aggregators, link)
        if (a->state == AGGREGATOR_UP && !has_own_limit(a))
            return period_ns;
    return local_ns > period_ns ? local_ns : period_ns;
}

static void ping(struct aggregator *a)
{
    a->pinged_ns = clock_now_ns();
    peer_reply(a->peer, ++a->service->door->next_id, PING_REQUEST, ping_request);
}

/* Returns whether an answer is in the socket and not read yet. An aggregator with such an answer is
 * not silent. */
static bool has_unread(const struct peer *p)
{
    struct pollfd fd = {.fd = channel_fd(p->channel), .events = POLLIN};
    return poll(&fd, 1, 0) > 0 && fd.revents;
}

/* Returns the longest permitted silence. The kernel reports the end of a local process, so the
 * limit for a local aggregator only has to exceed the longest wait for a core on a loaded
 * machine. */
static uint64_t limit_ns(const struct aggregator *a)
{
    const struct coordinator_options *o = a->service->options;
    return has_own_limit(a) ? o->local_timeout_ns : o->aggregator_timeout_ns;
}

/* Adds a period without an answer. Periods differ in length, so the sum of their lengths is
 * compared with the limit. */
static void silent_period(struct aggregator *a, uint64_t length_ns)
{
    uint64_t enough_ns = limit_ns(a) - length_ns / 2;
    bool is_over = a->silent_ns < enough_ns && a->silent_ns + length_ns >= enough_ns;
    if (a->periods_silent++ == 0)
        a->service->on->service->view_has_changed(a->service);
    a->silent_ns += length_ns;
    if (is_over)
        aggregator_hung(a);
}

static void look_at(struct aggregator *a, uint64_t length_ns)
{
    if (a->state != AGGREGATOR_UP || !a->peer)
        return;
    if (a->pinged_ns == 0)
        return ping(a);
    if (!has_unread(a->peer))
        silent_period(a, length_ns);
}

static void begin_period(struct service *s, uint64_t now_ns)
{
    s->pings->period_ns = period_ns(s);
    timer_start(s->loop, &s->pings->timer, now_ns + s->pings->period_ns);
}

/* Ends a period and begins the next. A period that ends late is not counted, because the whole
 * machine may have been suspended during the period. */
static void period_ended(struct timer *timer)
{
    struct service *s = container_of(timer, struct pings, timer)->service;
    uint64_t now_ns = clock_now_ns(), length_ns = s->pings->period_ns;
    bool is_late = now_ns > timer->deadline_ns + length_ns / 2;
    begin_period(s, now_ns);
    list_for_each_entry (struct aggregator, a, &s->aggregators, link)
        if (s->phase == SERVICE_UP && !is_late)
            look_at(a, length_ns);
}

int liveness_create(struct service *s)
{
    s->pings = calloc(1, sizeof *s->pings);
    if (!s->pings)
        return -ENOMEM;
    s->pings->service = s;
    timer_init(&s->pings->timer, period_ended);
    return 0;
}

void liveness_destroy(struct service *s)
{
    if (!s->pings)
        return;
    timer_stop(&s->pings->timer);
    free(s->pings);
}

void liveness_start(struct service *s)
{
    if (s->options->aggregator_timeout_ns)
        begin_period(s, clock_now_ns());
}

void liveness_joined(struct aggregator *a)
{
    struct service *s = a->service;
    if (s->options->aggregator_timeout_ns && period_ns(s) < s->pings->period_ns)
        begin_period(s, clock_now_ns());
}

void liveness_heard(struct aggregator *a)
{
    if (a->periods_silent > 0)
        log_info("%s answers again", AGGREGATOR_NAME(a));
    a->pinged_ns = 0;
    a->periods_silent = 0;
    a->silent_ns = 0;
}

uint64_t liveness_silent_ns(const struct aggregator *a)
{
    return a->state == AGGREGATOR_UP && a->periods_silent > 0 ? clock_now_ns() - a->pinged_ns : 0;
}
