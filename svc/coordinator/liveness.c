/* Whether aggregators still answer. Owns the timer of pings. A ping goes through an aggregator's
 * control thread and each of its lanes, so what is stuck anywhere is silent. Must never take for
 * somebody's silence that this process itself did not run, or has not read yet (K14). */
#include "svc/base/log.h"
#include "svc/coordinator/service.h"

#include <poll.h>

#define PERIODS 3 /* without an answer, in a row, and it is hung */
/* A local aggregator has so many periods in its own, longer limit, while no other one is there: a
 * ping wakes three threads, which is most of what an idle service costs. */
#define PERIODS_LOCAL 6

static bool has_own_limit(const struct aggregator *a)
{
    return a->process.fd >= 0 && a->service->options.local_timeout_ns > 0;
}

static uint64_t period_ns(const struct service *s)
{
    uint64_t period_ns = s->options.aggregator_timeout_ns / PERIODS;
    uint64_t local_ns = s->options.local_timeout_ns / PERIODS_LOCAL;
    list_for_each (node, &s->aggregators) {
        const struct aggregator *a = list_entry(node, struct aggregator, link);
        if (a->state == AGGREGATOR_UP && !has_own_limit(a))
            return period_ns;
    }
    return local_ns > period_ns ? local_ns : period_ns;
}

static void ping(struct aggregator *a)
{
    WIRE(PingRequest) request = GRADPOOL__WIRE__PING_REQUEST__INIT;
    envelope e = ENVELOPE_INIT;
    e.id = ++a->service->next_id;
    e.body_case = BODY(PING_REQUEST);
    e.ping_request = &request;
    a->pinged_ns = clock_now_ns();
    peer_send(a->peer, &e);
}

/* What has come, but waits for its turn in the loop, is no silence. */
static bool has_unread(const struct peer *p)
{
    struct pollfd fd = {.fd = channel_fd(p->channel), .events = POLLIN};
    return poll(&fd, 1, 0) > 0 && fd.revents;
}

/* That a local one's process lives is known: it only has to be told from one that waits for a core
 * of a loaded machine. */
static uint32_t periods_most(const struct aggregator *a)
{
    if (!has_own_limit(a))
        return PERIODS;
    return (uint32_t)(a->service->options.local_timeout_ns / period_ns(a->service));
}

static void look_at(struct aggregator *a)
{
    if (a->state != AGGREGATOR_UP || !a->peer)
        return;
    if (a->pinged_ns == 0)
        return ping(a);
    if (!has_unread(a->peer) && ++a->periods_silent >= periods_most(a))
        aggregator_hung(a);
}

/* A period in which this process stood still, however long, is no measure of anybody: the machine
 * may have stood still. The next one begins when it runs again. */
static void period_ended(struct timer *timer)
{
    struct service *s = container_of(timer, struct service, ping_timer);
    uint64_t now_ns = clock_now_ns();
    bool is_late = now_ns > timer->deadline_ns + period_ns(s) / 2;
    timer_start(&s->loop, timer, now_ns + period_ns(s));
    list_for_each (node, &s->aggregators)
        if (s->phase == SERVICE_UP && !is_late)
            look_at(list_entry(node, struct aggregator, link));
}

void liveness_start(struct service *s)
{
    timer_init(&s->ping_timer, period_ended);
    if (s->options.aggregator_timeout_ns)
        timer_start(&s->loop, &s->ping_timer, clock_now_ns() + period_ns(s));
}

void liveness_heard(struct aggregator *a)
{
    char name[AGGREGATOR_NAME_BYTES];
    if (a->periods_silent > 0)
        log_info("%s answers again", aggregator_name(a, name, sizeof name));
    a->pinged_ns = 0;
    a->periods_silent = 0;
}

uint64_t liveness_silent_ns(const struct aggregator *a)
{
    return a->state == AGGREGATOR_UP && a->periods_silent > 0 ? clock_now_ns() - a->pinged_ns : 0;
}
