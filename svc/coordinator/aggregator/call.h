/* Requests to aggregators, and their answers. */
#ifndef GRADPOOL_COORDINATOR_AGGREGATOR_CALL_H
#define GRADPOOL_COORDINATOR_AGGREGATOR_CALL_H

#include "svc/coordinator/aggregator/aggregator.h"

/* `reply` NULL: it failed, `code` and `text` say how. Comes from the loop, never from within
 * call_send(). */
typedef void (*call_done_fn)(struct service *s, void *data, const envelope *reply, int code,
                             const char *text);

/* Sends `request` (its id is filled in). Takes over `data`, which is freed after `done`. The one
 * error is -ENOMEM: nothing was sent, `data` is still the caller's. */
int call_send(struct aggregator *a, envelope *request, uint64_t timeout_ns, call_done_fn done,
              void *data);
/* Of a call that has failed: nobody answered, which says nothing of what was asked. */
bool call_went_unanswered(int code);
void call_answer(struct aggregator *a, const envelope *reply);
/* Fails them all. */
void calls_abandon(struct aggregator *a, int code, const char *text);
/* Frees them all, telling nobody. */
void calls_free(struct aggregator *a);

#endif
