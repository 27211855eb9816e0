/* Calls to aggregators and their answers. Owns struct call. The event loop calls `done` for each
 * answer and each failure, also if no aggregator is connected. So `done` never runs before
 * call_send() has returned. */
#include "svc/coordinator/aggregator/call.h"

#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/service.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct call {
    struct list link;
    struct aggregator *aggregator;
    uint64_t id;
    struct timer timer;
    call_done_fn done;
    uint64_t data[];
};

static void call_free(struct call *call)
{
    timer_stop(&call->timer);
    list_remove(&call->link);
    free(call);
}

static void call_end(struct call *call, const envelope *reply, int code, const char *text)
{
    /* The call leaves the list first, because `done` may end all calls of this aggregator. */
    list_remove(&call->link);
    call->done(call->aggregator->service, call->data, reply, code, text);
    call_free(call);
}

static void call_expired(struct timer *timer)
{
    struct call *call = container_of(timer, struct call, timer);
    char name[128], text[ERR_TEXT_BYTES];
    aggregator_name(call->aggregator, name, sizeof name);
    int code = call->aggregator->peer ? -ETIMEDOUT : -ENOTCONN;
    snprintf(text, sizeof text,
             code == -ETIMEDOUT ? "%s did not answer in time" : "%s is not connected", name);
    call_end(call, NULL, code, text);
}

int call_send(struct aggregator *a, envelope *request, uint64_t timeout_ns, call_done_fn done,
              const void *data, size_t data_bytes)
{
    struct call *call = calloc(1, sizeof *call + data_bytes);
    if (!call)
        return -ENOMEM;
    struct service *s = a->service;
    *call = (struct call){.aggregator = a, .id = ++s->door->next_id, .done = done};
    if (data_bytes > 0)
        memcpy(call->data, data, data_bytes);
    timer_init(&call->timer, call_expired);
    timer_start(s->loop, &call->timer, a->peer ? clock_now_ns() + timeout_ns : 0);
    list_append(&a->calls, &call->link);
    request->id = call->id;
    if (a->peer)
        peer_send(a->peer, request);
    return 0;
}

int lane_connect(const struct lane *lane, uint32_t job, uint32_t rank,
                 struct record_connect *ret_connect)
{
    *ret_connect = (struct record_connect){.magic = RECORD_MAGIC,
                                           .job = job,
                                           .rank = rank,
                                           .lane = lane->id,
                                           .incarnation = lane->aggregator->incarnation};
    ssize_t got = getrandom(ret_connect->token, RECORD_TOKEN_BYTES, 0);
    return got == RECORD_TOKEN_BYTES ? 0 : -EIO;
}

void call_answer(struct aggregator *a, const envelope *reply)
{
    list_for_each_entry (struct call, call, &a->calls, link) {
        if (call->id != reply->id)
            continue;
        bool failed = reply->body_case == BODY(FAILURE);
        int code = failed && reply->failure->code < 0 ? reply->failure->code : -EIO;
        call_end(call, failed ? NULL : reply, failed ? code : 0,
                 failed ? reply->failure->text : "");
        return;
    }
    /* An answer that arrives after the deadline of its call is ignored. */
}

bool call_went_unanswered(int code)
{
    return code == -ECONNRESET || code == -ENOTCONN || code == -ETIMEDOUT;
}

void calls_abandon(struct aggregator *a, int code, const char *text)
{
    while (!list_is_empty(&a->calls))
        call_end(list_entry(list_first(&a->calls), struct call, link), NULL, code, text);
}

void calls_free(struct aggregator *a)
{
    while (!list_is_empty(&a->calls))
        call_free(list_entry(list_first(&a->calls), struct call, link));
}
