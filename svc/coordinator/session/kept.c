/* Requests that cannot be answered yet: an aggregator is starting (K31) or disconnected (K56), or a
 * rank is still leaving (K40). Owns copies of the requests. Decides nothing. */
#include "svc/coordinator/session/kept.h"

#include "svc/coordinator/service.h"
#include "svc/coordinator/session/wait.h"

#include <errno.h>
#include <stdlib.h>

#define KEPT_BYTES_MAX CHANNEL_FRAME_BYTES_MAX

struct kept {
    kept_handler handler;
    size_t bytes;
    uint8_t request[];
};

/* The wait is freed before the request is handled, because the handler may create another wait. */
static void handle_again(struct wait *wait)
{
    struct peer *p = wait->peer;
    uint64_t id = wait->request;
    const struct kept *kept = wait->data;
    kept_handler handler = kept->handler;
    envelope *request = gradpool__wire__envelope__unpack(NULL, kept->bytes, kept->request);
    wait_destroy(wait);
    if (!request)
        return peer_fail_memory(p, id);
    struct turns *turns = &p->service->loop->turns;
    struct turn *payer = turns_bill(turns, &p->turn);
    handler(p, request);
    turns_bill(turns, payer);
    gradpool__wire__envelope__free_unpacked(request, NULL);
}

static size_t kept_of(const struct peer *p)
{
    size_t bytes = 0;
    list_for_each_entry (const struct wait, wait, &p->own_waits, own_link)
        if (wait->expired == handle_again)
            bytes += ((const struct kept *)wait->data)->bytes;
    return bytes;
}

void kept_add(struct peer *p, const envelope *request, uint64_t timeout_ns, kept_handler handler,
              const char *what)
{
    size_t bytes = gradpool__wire__envelope__get_packed_size(request), before = kept_of(p);
    if (before + bytes > KEPT_BYTES_MAX)
        return peer_fail(p, request->id, -EDQUOT,
                         "%zu bytes of requests wait for %s already: send fewer requests at a time",
                         before, what);
    struct kept *kept = malloc(sizeof *kept + bytes);
    if (!kept)
        return peer_fail_memory(p, request->id);
    kept->handler = handler;
    kept->bytes = bytes;
    gradpool__wire__envelope__pack(request, kept->request);
    struct wait *wait = wait_create(p, request->id, timeout_ns, handle_again, kept);
    if (wait)
        /* A kept request is not counted as an open request. Otherwise requests that are kept until
         * there are fewer open requests would wait for each other forever. */
        wait_uncount(wait);
}

static bool is_for(const struct wait *wait, kept_handler handler)
{
    return wait->expired == handle_again && ((const struct kept *)wait->data)->handler == handler;
}

static struct wait *next(struct service *s, kept_handler handler, uint64_t newest)
{
    list_for_each_entry (struct wait, wait, &s->door->waits, link)
        if (wait->id <= newest && is_for(wait, handler))
            return wait;
    return NULL;
}

/* Handles the requests that are in the list at the time of the call. A handler may end any wait. If
 * a handler keeps its request again, the request gets a higher number and is not handled twice. */
void kept_check(struct service *s, kept_handler handler)
{
    uint64_t newest = s->door->next_id;
    for (struct wait *wait; (wait = next(s, handler, newest));)
        handle_again(wait);
}

void kept_check_soon(struct service *s, kept_handler handler)
{
    list_for_each_entry (struct wait, wait, &s->door->waits, link)
        if (is_for(wait, handler))
            timer_start(s->loop, &wait->timer, clock_now_ns());
}
