/* Delays replies to PlaceRequest until the workers of the pieces are connected and their memory is
 * mapped. The first round of a moved piece therefore does not wait for connections. Owns the
 * pending replies. Every delay is limited: a move continues without late workers. RULES.md of
 * svc/lane: A80. */
#include "svc/lane/move/ahead.h"
#include "svc/aggregator/internal.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <stdlib.h>

#define WAITS_MAX 1024 /* maximum number of pending replies */
#define WAIT_NS (3 * NS_PER_S)
#define LOOK_MS 5

struct ahead_wait {
    struct ahead_wait *next;
    uint64_t id; /* number of the request */
    uint32_t lane, job;
    uint64_t until_ns, look_ns;
    /* At the last check the workers were ready. The reply is sent after two such checks in a row,
     * because a worker lends memory only after its connection is open. */
    bool was_ready;
};

static int ahead_ask(struct lane *lane, void *context)
{
    const struct ahead_wait *w = context;
    return lane_has_workers(lane, w->job);
}

/* Checks one pending reply. Returns 0 if the workers are ready or the time is over, -EAGAIN if they
 * are not ready yet, or another error of lane_has_workers(). */
static int ahead_judge(struct aggregator *a, struct ahead_wait *w, uint64_t now_ns)
{
    int code = serve_call(a, w->lane, ahead_ask, w);
    bool was_ready = w->was_ready;
    w->was_ready = code == 0;
    w->look_ns = now_ns + LOOK_MS * NS_PER_MS;
    if (code == 0 && !was_ready)
        code = -EAGAIN;
    return code == -EAGAIN && now_ns >= w->until_ns ? 0 : code;
}

int ahead_look(struct aggregator *a)
{
    uint64_t now_ns = clock_now_ns();
    int sent = 0;
    for (struct ahead_wait **at = &a->ahead_waits, *w; (w = *at) && sent >= 0;) {
        int code = now_ns < w->look_ns ? -EAGAIN : ahead_judge(a, w, now_ns);
        if (code == -EAGAIN) {
            at = &w->next;
            continue;
        }
        sent = serve_reply(a, w->id, code);
        *at = w->next;
        free(w);
    }
    return sent;
}

int ahead_timeout_ms(const struct aggregator *a)
{
    uint64_t next_ns = UINT64_MAX;
    for (const struct ahead_wait *w = a->ahead_waits; w; w = w->next)
        next_ns = w->look_ns < next_ns ? w->look_ns : next_ns;
    return clock_poll_ms(next_ns, clock_now_ns());
}

void ahead_abandon(struct aggregator *a)
{
    for (struct ahead_wait *w; (w = a->ahead_waits);) {
        a->ahead_waits = w->next;
        free(w);
    }
}

int ahead_await(struct aggregator *a, uint64_t id, uint32_t lane, uint32_t job)
{
    size_t count = 0;
    for (const struct ahead_wait *other = a->ahead_waits; other; other = other->next)
        count++;
    struct ahead_wait *w = count < WAITS_MAX ? malloc(sizeof *w) : NULL;
    if (!w)
        return serve_done(a, id);
    uint64_t now_ns = clock_now_ns();
    *w = (struct ahead_wait){.next = a->ahead_waits,
                             .id = id,
                             .lane = lane,
                             .job = job,
                             .until_ns = now_ns + WAIT_NS,
                             .look_ns = now_ns};
    a->ahead_waits = w;
    return 0;
}
