/* Measurements of all aggregators, shared by all readers. A look is one request for the counters of
 * each aggregator. Two looks begin at least PAUSE_NS apart, because each look delays every lane by
 * one turn of its loop (RULES.md: K100). */
#include "svc/coordinator/aggregator/looks.h"

#include "svc/coordinator/aggregator/busy_time.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/measure/measure.h"
#include "svc/coordinator/service.h"

#include <errno.h>
#include <stdlib.h>

#define STATS_DEADLINE_NS (500 * NS_PER_MS)
#define PAUSE_NS (20 * NS_PER_MS) /* shortest time between the beginnings of two looks */

struct looks {
    struct service *service;
    uint64_t number;   /* number of the newest look */
    uint64_t began_ns; /* time at which the newest look began */
    uint32_t pending;  /* number of aggregators without an answer so far */
    bool is_wanted;    /* a caller has requested another look, which begins after the pause */
    struct timer timer;
};

static void begin(struct service *s);

static void begin_when_due(struct service *s)
{
    uint64_t due_ns = s->looks->began_ns + PAUSE_NS;
    if (clock_now_ns() >= due_ns)
        begin(s);
    else
        timer_start(s->loop, &s->looks->timer, due_ns);
}

static void over(struct service *s)
{
    s->on->aggregator->look_is_over(s, s->looks->number);
    if (s->looks->is_wanted)
        begin_when_due(s);
}

static void answered(struct service *s, void *data, const envelope *reply, int code,
                     const char *text)
{
    struct aggregator *a = aggregator_find(s, *(const uint32_t *)data);
    if (a && reply && reply->body_case == BODY(STATS_REPLY))
        stats_keep(a, reply);
    if (--s->looks->pending == 0)
        over(s);
}

static bool ask(struct aggregator *a)
{
    return stats_request(a, 0, STATS_DEADLINE_NS, answered, &a->id, sizeof a->id) == 0;
}

static void begin(struct service *s)
{
    struct looks *looks = s->looks;
    looks->number++;
    looks->began_ns = clock_now_ns();
    looks->is_wanted = false;
    list_for_each_entry (struct aggregator, a, &s->aggregators, link)
        looks->pending += a->state == AGGREGATOR_UP && ask(a);
    if (looks->pending == 0)
        over(s);
}

static void is_due(struct timer *timer)
{
    begin(container_of(timer, struct looks, timer)->service);
}

int looks_create(struct service *s)
{
    s->looks = calloc(1, sizeof *s->looks);
    if (!s->looks)
        return -ENOMEM;
    s->looks->service = s;
    timer_init(&s->looks->timer, is_due);
    return 0;
}

void looks_destroy(struct service *s)
{
    if (!s->looks)
        return;
    timer_stop(&s->looks->timer);
    free(s->looks);
}

void looks_ask(struct service *s)
{
    struct looks *looks = s->looks;
    bool waits = looks->is_wanted;
    looks->is_wanted = true;
    if (looks->pending == 0 && !waits)
        begin_when_due(s);
}

uint64_t looks_next(const struct service *s) { return s->looks->number + 1; }
