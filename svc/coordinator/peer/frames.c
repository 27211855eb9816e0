/* Memory for long control messages while they arrive. Once the length of a message is known, memory
 * for the whole message is reserved, so that an accepted message can always be completed. Tenants
 * and the service have limits. A peer waits while its message would exceed a limit. Aggregators
 * never wait (RULES.md: K101). */
#include "svc/coordinator/peer/frames.h"

#include "svc/coordinator/job/quota.h"
#include "svc/coordinator/service.h"

#include <errno.h>

/* Largest sum over all connections. If there are several tenants, each may use half of this sum. */
#define FRAMES_BYTES_MAX (UINT64_C(1) << 30)

static bool has_room(const struct peer *p, uint32_t bytes)
{
    const struct service *s = p->service;
    uint64_t most = p->tenant->limits.most[LIMIT_TENANT_MESSAGES];
    if (most > FRAMES_BYTES_MAX / 2 && !tenants_has_one(s))
        most = FRAMES_BYTES_MAX / 2;
    return p->tenant->frame_bytes + bytes <= most &&
           s->door->frame_bytes + bytes <= FRAMES_BYTES_MAX;
}

static void take(struct peer *p, uint32_t bytes)
{
    p->frame_bytes = bytes;
    p->tenant->frame_bytes += bytes;
    p->service->door->frame_bytes += bytes;
    channel_hold_frames(p->channel, bytes);
    timer_start(p->service->loop, &p->timer, clock_now_ns() + FRAME_DEADLINE_NS);
}

int frames_admit(struct peer *p)
{
    uint32_t bytes = channel_frame_bytes(p->channel);
    if (bytes <= FRAME_BYTES_FREE || p->frame_bytes > 0)
        return 0;
    if (p->state != PEER_OPEN)
        return -EAGAIN; /* the peer is about to be closed, so its message is dropped */
    if (p->aggregator) {
        channel_hold_frames(p->channel, CHANNEL_FRAME_BYTES_MAX);
        return 1;
    }
    if (!has_room(p, bytes)) {
        list_remove(&p->frame_link);
        list_append(&p->service->door->frames_waiting, &p->frame_link);
        return -EAGAIN;
    }
    take(p, bytes);
    return 1;
}

bool frames_waits(const struct peer *p) { return !list_is_empty(&p->frame_link); }

/* Resumes waiting peers for which memory is now available. */
static void let_others(struct service *s)
{
    list_for_each_safe_entry (struct peer, p, &s->door->frames_waiting, frame_link) {
        if (!has_room(p, channel_frame_bytes(p->channel)))
            continue;
        list_remove(&p->frame_link);
        peer_check_held(p);
    }
}

static void give_back(struct peer *p)
{
    if (p->frame_bytes == 0)
        return;
    p->tenant->frame_bytes -= p->frame_bytes;
    p->service->door->frame_bytes -= p->frame_bytes;
    p->frame_bytes = 0;
    let_others(p->service);
}

void frames_received(struct peer *p)
{
    if (p->frame_bytes == 0)
        return;
    give_back(p);
    channel_hold_frames(p->channel, FRAME_BYTES_FREE);
    if (p->state == PEER_OPEN)
        timer_stop(&p->timer);
}

void frames_forget(struct peer *p)
{
    list_remove(&p->frame_link);
    give_back(p);
}
