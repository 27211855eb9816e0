/* Requests to a coordinator about a timeline. Owns nothing. Blocks, but never beyond its deadlines.
 * README: E5. */
#include "svc/timeline/timeline_fetch.h"

#include <errno.h>
#include <poll.h>

#define ASK_MS 100 /* pause between two requests */
#define ANSWER_MS 5000

int timeline_begin(struct channel *channel, const struct timeline_wish *wish,
                   struct timeline_file *file, uint64_t *ret_timeline, struct err *err)
{
    envelope *reply;
    int error =
        channel_ask(channel,
                    &MESSAGE(0, TIMELINE_REQUEST, timeline_request, .job = (char *)wish->job,
                             .tenant = (char *)wish->tenant, .for_ns = wish->for_ns),
                    ANSWER_MS, GRADPOOL__WIRE__ENVELOPE__BODY_TIMELINE_REPLY, &reply, err);
    if (error < 0)
        return error;
    *ret_timeline = reply->timeline_reply->timeline;
    timeline_file_begin(file, wish->job, reply->timeline_reply->begun_ns);
    gradpool__wire__envelope__free_unpacked(reply, NULL);
    return timeline_file_check(file, err);
}

struct told {
    bool has_more, is_over;
};

static int ask_next(struct channel *channel, uint64_t timeline, bool ends,
                    struct timeline_file *file, struct told *ret_told, struct err *err)
{
    envelope *reply;
    int error = channel_ask(channel,
                            &MESSAGE(0, TIMELINE_NEXT_REQUEST, timeline_next_request,
                                     .timeline = timeline, .ends = ends),
                            ANSWER_MS, GRADPOOL__WIRE__ENVELOPE__BODY_TIMELINE_NEXT, &reply, err);
    if (error < 0)
        return error;
    const Gradpool__Wire__TimelineNext *next = reply->timeline_next;
    timeline_file_add(file, next);
    error = timeline_file_check(file, err);
    *ret_told = (struct told){.has_more = next->has_more, .is_over = next->is_over};
    if (error == 0 && *next->note)
        error = err_set(err, -ECONNRESET, "%s", next->note);
    gradpool__wire__envelope__free_unpacked(reply, NULL);
    return error;
}

/* Waits before the next request, for a short time if more rounds are available already. Returns
 * whether `stop_fd` is readable. */
static bool wait_for_stop(int stop_fd, bool has_more)
{
    struct pollfd stop = {.fd = stop_fd, .events = POLLIN};
    return poll(&stop, 1, has_more ? 1 : ASK_MS) > 0;
}

int timeline_follow(struct channel *channel, uint64_t timeline, int stop_fd,
                    struct timeline_file *file, struct err *err)
{
    struct told told = {0};
    bool ends = false;
    int error = 0;
    while (error == 0 && !told.is_over) {
        error = ask_next(channel, timeline, ends, file, &told, err);
        if (error == 0 && !told.is_over)
            ends = wait_for_stop(ends ? -1 : stop_fd, told.has_more || ends) || ends;
    }
    return error;
}
