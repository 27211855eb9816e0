/* Shows the service to the display that main.c has handed over, at intervals. Owns its timers and
 * its place in the loop; never waits for it, and spends on it at most a hundredth of the
 * coordinator's time (K18). */
#include "svc/coordinator/display.h"

#include "svc/coordinator/measuring.h"
#include "svc/coordinator/service.h"

#include <sys/epoll.h>

#define SHOW_NS NS_PER_S /* between two snapshots, at least */
#define SHOW_COST 100    /* and so many times what one has taken */

static void run(struct service *s)
{
    const struct display *d = &s->options.display;
    uint64_t next_ns = d->run(d->context);
    if (next_ns == UINT64_MAX)
        timer_stop(&s->display_timer);
    else
        timer_start(&s->loop, &s->display_timer, next_ns);
}

static void run_ready(struct source *source, uint32_t events)
{
    run(container_of(source, struct service, display_source));
}

static void run_due(struct timer *timer)
{
    run(container_of(timer, struct service, display_timer));
}

/* Those that nobody else asks for (K15); what comes is shown next time. */
static void ask_for_figures(struct service *s, uint64_t now_ns)
{
    list_for_each (node, &s->aggregators) {
        struct aggregator *a = list_entry(node, struct aggregator, link);
        if (a->state == AGGREGATOR_UP && a->measured_ns + 2 * SHOW_NS <= now_ns)
            stats_ask(a, 0);
    }
}

static void show(struct timer *timer)
{
    struct service *s = container_of(timer, struct service, show_timer);
    uint64_t began_ns = clock_now_ns();
    envelope *status, *jobs;
    if (view_build(s, &status, &jobs) == 0)
        s->options.display.show(s->options.display.context, status, jobs);
    ask_for_figures(s, began_ns);
    uint64_t now_ns = clock_now_ns(), pause_ns = SHOW_COST * (now_ns - began_ns);
    timer_start(&s->loop, timer, now_ns + (pause_ns > SHOW_NS ? pause_ns : SHOW_NS));
}

int display_start(struct service *s)
{
    timer_init(&s->display_timer, run_due);
    timer_init(&s->show_timer, show);
    if (!s->options.display.context)
        return 0;
    s->display_source = (struct source){.fd = s->options.display.fd, .ready = run_ready};
    timer_start(&s->loop, &s->show_timer, 0);
    return loop_watch(&s->loop, &s->display_source, EPOLLIN);
}

void display_end(struct service *s)
{
    struct display *d = &s->options.display;
    if (d->context)
        d->destroy(d->context);
    d->context = NULL;
}
