/* Requests to aggregators, and their answers. */
#ifndef GRADPOOL_COORDINATOR_AGGREGATOR_CALL_H
#define GRADPOOL_COORDINATOR_AGGREGATOR_CALL_H

#include "svc/coordinator/aggregator/aggregator.h"
#include "svc/wire/record.h"

/* Receives the answer of a call. The event loop calls this function, never call_send(). `reply` is
 * NULL if the call failed with `code` and `text`. */
typedef void (*call_done_fn)(struct service *s, void *data, const envelope *reply, int code,
                             const char *text);

/* Sends `request` with a new id, and stores a copy of `data` for `done`. Returns 0 or -ENOMEM.
 * After -ENOMEM, nothing was sent and `done` is not called. */
int call_send(struct aggregator *a, envelope *request, uint64_t timeout_ns, call_done_fn done,
              const void *data, size_t data_bytes);
/* Sends a request to a lane, like call_send(), and sets the number of the lane. Example:
 * lane_call(lane, thawed, &id, sizeof id, THAW_REQUEST, thaw_request, .job_id = job_id). */
#define lane_call(to, done, data, data_bytes, KIND, member, ...)                          \
    call_send((to)->aggregator, &MESSAGE(0, KIND, member, .lane = (to)->id, __VA_ARGS__), \
              CALL_DEADLINE_NS, done, data, data_bytes)
/* Creates the record with which a rank or a replica holder connects to the lane. The record has a
 * new token, which is valid once the lane has granted it. Returns 0, or -EIO if no random number
 * could be read. */
int lane_connect(const struct lane *lane, uint32_t job, uint32_t rank,
                 struct record_connect *ret_connect);
/* Returns whether `code` stands for a missing answer. In that case the aggregator may or may not
 * have carried out the request. */
bool call_went_unanswered(int code);
void call_answer(struct aggregator *a, const envelope *reply);
/* Ends all calls to the aggregator: each `done` receives `code` and `text`. */
void calls_abandon(struct aggregator *a, int code, const char *text);
/* Frees all calls to the aggregator without calling `done`. */
void calls_free(struct aggregator *a);

#endif
