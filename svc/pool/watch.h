/* Requests the state of the job about once a second. A separate thread sends the requests, so that
 * the pool does not wait for a service without an answer. */
#ifndef GRADPOOL_POOL_WATCH_H
#define GRADPOOL_POOL_WATCH_H

#include "svc/base/err.h"
#include "svc/pool/ranks.h"

/* Requests the state once. Returns 0 or a negative errno. */
typedef int (*watch_look_fn)(void *context, struct pool_look *ret_look, struct err *err);

struct watch;

/* Starts the thread. Only this thread calls `look`, with `context`. A request cannot be
 * interrupted, so the thread ends with the process, and `context` must exist until then. */
int watch_create(watch_look_fn look, void *context, struct watch **ret_watch, struct err *err);
/* Returns a descriptor that is readable after a look. */
int watch_fd(const struct watch *watch);
/* Copies the newest look, and makes watch_fd() unreadable. Returns 0, or the error of the look with
 * its text. */
int watch_take(struct watch *watch, struct pool_look *ret_look, struct err *err);
/* Makes the next look begin at once. */
void watch_hurry(struct watch *watch);

#endif
