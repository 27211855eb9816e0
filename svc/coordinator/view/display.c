/* Passes the service's state to the display at intervals, and sends the display's report to
 * operators. Owns the timers. Never blocks because of the display. At most a hundredth of the
 * coordinator's time is spent on building states (K18). */
#include "svc/coordinator/view/display.h"

#include "svc/coordinator/measure/measure.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/view/status.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>

#define SHOW_NS NS_PER_S /* shortest time between two states */
#define REPORT_ROOM 1024 /* bytes that a message needs in addition to the text of the report */
#define SHOW_COST 100    /* shortest pause, as a multiple of the time for building a state */
/* Largest factor by which the pause grows while no job trains, joins or ends. */
#define SHOW_IDLE_TIMES 8

struct showing {
    struct service *service;
    struct source source;
    struct timer run_timer, timer;
    uint64_t shown_ns;   /* time at which the last state was passed to the display */
    uint64_t pause_ns;   /* usual pause after the last state */
    uint32_t idle_shows; /* number of consecutive states without training */
};

static void run(struct service *s)
{
    const struct display *d = &s->options->display;
    uint64_t next_ns = d->run(d->context);
    if (next_ns == UINT64_MAX)
        timer_stop(&s->showing->run_timer);
    else
        timer_start(s->loop, &s->showing->run_timer, next_ns);
}

static void run_ready(struct source *source, uint32_t events)
{
    run(container_of(source, struct showing, source)->service);
}

static void run_due(struct timer *timer)
{
    run(container_of(timer, struct showing, run_timer)->service);
}

/* Requests measurements if measure/ has not requested any recently (K15). The next state contains
 * the results. */
static void ask_for_figures(struct service *s, uint64_t now_ns)
{
    list_for_each_entry (struct aggregator, a, &s->aggregators, link)
        if (a->state == AGGREGATOR_UP && a->measured_ns + 2 * SHOW_NS <= now_ns)
            stats_ask(a, 0);
}

static void show(struct timer *timer)
{
    struct service *s = container_of(timer, struct showing, timer)->service;
    uint64_t began_ns = clock_now_ns(), period_ns = s->options->display.period_ns;
    envelope *status, *jobs;
    if (view_build(s, &status, &jobs) == 0)
        s->options->display.show(s->options->display.context, status, jobs);
    /* after two states without training, measurements no longer change */
    if (s->showing->idle_shows < 2)
        ask_for_figures(s, began_ns);
    uint64_t now_ns = clock_now_ns(), pause_ns = SHOW_COST * (now_ns - began_ns);
    if (pause_ns < period_ns)
        pause_ns = period_ns;
    s->showing->shown_ns = now_ns;
    s->showing->pause_ns = pause_ns > SHOW_NS ? pause_ns : SHOW_NS;
    s->showing->idle_shows = measuring_is_idle(s) ? s->showing->idle_shows + 1 : 0;
    uint64_t times =
        s->showing->idle_shows < SHOW_IDLE_TIMES ? s->showing->idle_shows + 1 : SHOW_IDLE_TIMES;
    timer_start(s->loop, timer, now_ns + times * s->showing->pause_ns);
}

void display_wake(struct service *s)
{
    uint64_t next_ns = s->showing->shown_ns + s->showing->pause_ns;
    bool is_armed = !list_is_empty(&s->showing->timer.link);
    s->showing->idle_shows = 0;
    if (is_armed && s->showing->timer.deadline_ns > next_ns)
        timer_start(s->loop, &s->showing->timer, next_ns);
}

static void send_report(struct peer *p, const envelope *request, char *text, size_t bytes)
{
    if (bytes > CHANNEL_FRAME_BYTES_MAX - REPORT_ROOM)
        return peer_fail(p, request->id, -EMSGSIZE,
                         "the report has %zu bytes, more than a message can have: read the report "
                         "over HTTP (`gradpool serve --http`)",
                         bytes);
    peer_reply(p, request->id, REPORT_REPLY, report_reply, .text = {bytes, (uint8_t *)text});
}

/* Sends the report. If the last state is old, a new state is built first. A new state costs as much
 * as requests for status and jobs, which any peer may send. */
void report_handle(struct peer *p, const envelope *request)
{
    struct service *s = p->service;
    const struct display *d = &s->options->display;
    char *text;
    size_t bytes;
    if (!peer_is_operator(p, request->id, "the report, which shows the jobs of all tenants,"))
        return;
    if (d->context && clock_now_ns() > s->showing->shown_ns + SHOW_NS)
        show(&s->showing->timer);
    int error = d->context ? d->report(d->context, request->report_request->json, &text, &bytes)
                           : -EOPNOTSUPP;
    if (error < 0)
        return peer_fail(p, request->id, error, "there is no report: %s", err_text(error));
    send_report(p, request, text, bytes);
    free(text);
}

int display_create(struct service *s)
{
    s->showing = calloc(1, sizeof *s->showing);
    if (!s->showing)
        return -ENOMEM;
    s->showing->service = s;
    timer_init(&s->showing->run_timer, run_due);
    timer_init(&s->showing->timer, show);
    return 0;
}

void display_destroy(struct service *s)
{
    if (!s->showing)
        return;
    timer_stop(&s->showing->run_timer);
    timer_stop(&s->showing->timer);
    free(s->showing);
}

int display_start(struct service *s)
{
    if (!s->options->display.context)
        return 0;
    timer_start(s->loop, &s->showing->timer, 0);
    if (s->options->display.fd < 0)
        return 0;
    s->showing->source = (struct source){.fd = s->options->display.fd, .ready = run_ready};
    return loop_watch(s->loop, &s->showing->source, EPOLLIN);
}

void display_end(struct service *s)
{
    struct display *d = &s->options->display;
    if (d->context)
        d->destroy(d->context);
    d->context = NULL;
}
