/* Declares that wait for an aggregator to start, because no lane is as their job needs one (K31).
 * Owns copies of the requests; each is handled from the start again, as if it came only now. */
#include "svc/coordinator/scaling.h"

#include "svc/coordinator/service.h"

#include <errno.h>
#include <stdlib.h>

#define KEPT_BYTES_MAX CHANNEL_FRAME_BYTES_MAX

struct kept {
    size_t bytes;
    uint8_t request[];
};

/* The wait is gone before the request is handled: that may make another. */
static void handle_again(struct wait *wait)
{
    struct peer *p = wait->peer;
    uint64_t id = wait->request;
    const struct kept *kept = wait->data;
    envelope *request = gradpool__wire__envelope__unpack(NULL, kept->bytes, kept->request);
    wait_destroy(wait);
    if (!request)
        return peer_fail_memory(p, id);
    declare_handle(p, request);
    gradpool__wire__envelope__free_unpacked(request, NULL);
}

static size_t kept_of(const struct peer *p)
{
    size_t bytes = 0;
    list_for_each (node, &p->service->waits) {
        const struct wait *wait = list_entry(node, struct wait, link);
        if (wait->peer == p && wait->expired == handle_again)
            bytes += ((const struct kept *)wait->data)->bytes;
    }
    return bytes;
}

/* Of one worker no more than one message may hold, be it in many. */
void starting_wait(struct peer *p, const envelope *request)
{
    size_t bytes = gradpool__wire__envelope__get_packed_size(request), before = kept_of(p);
    if (before + bytes > KEPT_BYTES_MAX)
        return peer_fail(p, request->id, -EDQUOT,
                         "%zu bytes of declares wait for an aggregator to start already: declare "
                         "less at a time",
                         before);
    struct kept *kept = malloc(sizeof *kept + bytes);
    if (!kept)
        return peer_fail_memory(p, request->id);
    kept->bytes = bytes;
    gradpool__wire__envelope__pack(request, kept->request);
    wait_create(p, request->id, SCALING_START_NS, handle_again, kept);
}

static struct wait *next(struct service *s, uint64_t newest)
{
    list_for_each (node, &s->waits) {
        struct wait *wait = list_entry(node, struct wait, link);
        if (wait->expired == handle_again && wait->id <= newest)
            return wait;
    }
    return NULL;
}

/* Any handler may end any wait, and those that wait again are newer. */
void starting_check(struct service *s)
{
    uint64_t newest = s->next_id;
    for (struct wait *wait; (wait = next(s, newest));)
        handle_again(wait);
}
