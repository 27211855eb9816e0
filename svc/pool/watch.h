/* Requests the state of the job again and again, in a thread of its own: a request may wait for a
 * service that does not answer, and the pool must not. */
#ifndef GRADPOOL_POOL_WATCH_H
#define GRADPOOL_POOL_WATCH_H

#include "svc/base/err.h"
#include "svc/pool/ranks.h"

/* Requests the state once. Returns 0 or a negative errno. */
typedef int (*watch_look_fn)(void *context, struct pool_look *ret_look, struct err *err);

struct watch;

/* Starts the thread. `look` is called only there, with `context`, which must outlive the process:
 * the thread ends with the process, because a request cannot be interrupted. */
int watch_create(watch_look_fn look, void *context, struct watch **ret_watch, struct err *err);
/* Returns a descriptor that is readable after a look. */
int watch_fd(const struct watch *watch);
/* Copies the newest look, and makes watch_fd() unreadable. Returns 0, or the error of the look with
 * its text. */
int watch_take(struct watch *watch, struct pool_look *ret_look, struct err *err);
/* The next look begins at once. */
void watch_hurry(struct watch *watch);

#endif
