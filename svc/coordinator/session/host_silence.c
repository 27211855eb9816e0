/* Detects that a worker's host is down. Owns the timer of the checks. The kernel of the worker's
 * host answers a check, so no message from the worker itself is required: a worker that is stopped
 * or does not read counts as late, not as lost (K53). */
#include "svc/coordinator/session/host_silence.h"

#include "svc/coordinator/service.h"
#include "svc/coordinator/session/session.h"

#include <errno.h>
#include <stdlib.h>

/* --worker-timeout is divided into 8 checks. After 5 checks without an answer a ping is sent. The
 * host has to acknowledge the ping within 3 checks. */
#define LOOKS 8
#define LOOKS_QUIET 5

struct silence {
    struct service *service;
    struct timer timer; /* fires at the next check */
};

static uint64_t period_ns(const struct service *s) { return s->options->worker_timeout_ns / LOOKS; }

/* Returns the period of TCP keep-alive probes, in seconds. A live host answers at least one probe
 * within 5 checks. */
static unsigned ask_s(const struct service *s)
{
    uint64_t half_s = s->options->worker_timeout_ns / 2 / NS_PER_S;
    return half_s > 0 ? (unsigned)half_s : 1;
}

/* Counts a check without an answer, and sends a ping, which makes the kernel send a TCP segment.
 * The kernel repeats a lost segment several times, so a single lost probe does not make the worker
 * lost. The worker need not read the ping. */
static void judge(struct peer *p, uint64_t silent_ns)
{
    if (p->silent_looks++ == 0)
        peer_reply(p, 0, PING_REQUEST, ping_request);
    else if (p->silent_looks > LOOKS - LOOKS_QUIET && p->session)
        session_silent(p->session, silent_ns);
    else if (p->silent_looks > LOOKS - LOOKS_QUIET)
        peer_break(p);
}

static void look_at(struct peer *p, uint64_t now_ns)
{
    if (now_ns < p->look_ns)
        return;
    uint64_t quiet_ns = LOOKS_QUIET * period_ns(p->service);
    uint64_t silent_ns = channel_silent_ns(p->channel);
    if (silent_ns >= quiet_ns)
        return judge(p, silent_ns);
    p->silent_looks = 0;
    /* the silence cannot reach its limit before this time */
    p->look_ns = now_ns + quiet_ns - silent_ns;
}

/* Runs the checks. If a check is late, the next check follows a full period later, so that an
 * answer that arrives in between is counted. The timer is off if no peer is checked, so an idle
 * service does not wake up. */
static void looks(struct timer *timer)
{
    struct service *s = container_of(timer, struct silence, timer)->service;
    uint64_t now_ns = clock_now_ns(), soonest_ns = now_ns + period_ns(s), next_ns = UINT64_MAX;
    list_for_each_entry (struct peer, p, &s->door->peers, link) {
        if (s->phase != SERVICE_UP || p->state != PEER_OPEN || p->look_ns == 0)
            continue;
        look_at(p, now_ns);
        if (p->look_ns < next_ns)
            next_ns = p->look_ns;
    }
    if (next_ns < UINT64_MAX)
        timer_start(s->loop, timer, next_ns > soonest_ns ? next_ns : soonest_ns);
}

int silence_create(struct service *s)
{
    s->silence = calloc(1, sizeof *s->silence);
    if (!s->silence)
        return -ENOMEM;
    s->silence->service = s;
    timer_init(&s->silence->timer, looks);
    return 0;
}

void silence_destroy(struct service *s)
{
    if (!s->silence)
        return;
    timer_stop(&s->silence->timer);
    free(s->silence);
}

/* Workers on this host are not checked, because the end of their process is an event. */
void silence_watch(struct peer *p)
{
    struct service *s = p->service;
    bool is_worker = p->role == GRADPOOL__WIRE__ROLE__ROLE_CLIENT;
    if (!s->options->worker_timeout_ns || !is_worker || p->is_local ||
        channel_is_loopback(p->channel))
        return;
    channel_watch_host(p->channel, ask_s(s));
    p->look_ns = clock_now_ns() + LOOKS_QUIET * period_ns(s);
    if (list_is_empty(&s->silence->timer.link) || s->silence->timer.deadline_ns > p->look_ns)
        timer_start(s->loop, &s->silence->timer, p->look_ns);
}
