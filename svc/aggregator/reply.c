/* Answers to the coordinator's requests, and calls of lanes. */
#include "svc/aggregator/internal.h"
#include "svc/base/err.h"

#include <errno.h>

struct lane_thread *serve_find_lane(struct aggregator *a, uint32_t id)
{
    for (size_t i = 0; i < a->lanes_count; i++) {
        if (a->lane_ids[i] == id)
            return a->lanes[i];
    }
    return NULL;
}

int serve_done(struct aggregator *a, uint64_t id) { return serve_answer(a, id, DONE, done); }

int serve_reply_failure(struct aggregator *a, uint64_t id, int code, const char *text)
{
    return serve_answer(a, id, FAILURE, failure, .code = code, .text = (char *)text);
}

int serve_reply(struct aggregator *a, uint64_t id, int result)
{
    return result < 0 ? serve_reply_failure(a, id, result, err_text(result)) : serve_done(a, id);
}

int serve_call(struct aggregator *a, uint32_t lane, int (*call)(struct lane *lane, void *context),
               void *context)
{
    struct lane_thread *thread = serve_find_lane(a, lane);
    return thread ? lane_thread_call(thread, call, context) : -ENOENT;
}
