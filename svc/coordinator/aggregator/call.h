/* Requests to aggregators, and their answers. */
#ifndef GRADPOOL_COORDINATOR_AGGREGATOR_CALL_H
#define GRADPOOL_COORDINATOR_AGGREGATOR_CALL_H

#include "svc/coordinator/aggregator/aggregator.h"
#include "svc/wire/record.h"

/* `reply` NULL: it failed, `code` and `text` say how. Comes from the loop, never from within
 * call_send(). */
typedef void (*call_done_fn)(struct service *s, void *data, const envelope *reply, int code,
                             const char *text);

/* Sends `request` (its id is filled in) with a copy of `data`, which `done` gets. The one error is
 * -ENOMEM: nothing was sent. */
int call_send(struct aggregator *a, envelope *request, uint64_t timeout_ns, call_done_fn done,
              const void *data, size_t data_bytes);
/* A request to a lane, whose number is filled in: lane_call(lane, thawed, &id, sizeof id,
 * THAW_REQUEST, thaw_request, .job_id = job_id). As call_send(). */
#define lane_call(to, done, data, data_bytes, KIND, member, ...)                          \
    call_send((to)->aggregator, &MESSAGE(0, KIND, member, .lane = (to)->id, __VA_ARGS__), \
              CALL_DEADLINE_NS, done, data, data_bytes)
/* A record with a fresh token, by which a rank, or an aggregator that keeps copies, connects to the
 * lane once the lane has granted it. -EIO: no random numbers. */
int lane_connect(const struct lane *lane, uint32_t job, uint32_t rank,
                 struct record_connect *ret_connect);
/* Of a call that has failed: nobody answered, which says nothing of what was asked. */
bool call_went_unanswered(int code);
void call_answer(struct aggregator *a, const envelope *reply);
/* Fails them all. */
void calls_abandon(struct aggregator *a, int code, const char *text);
/* Frees them all, telling nobody. */
void calls_free(struct aggregator *a);

#endif
