/* One rank of a job is held at the end of an iteration: no round of all ranks begins without it, so
 * what has no result yet is of that iteration or an earlier one. README: K51. */
#ifndef GRADPOOL_COORDINATOR_SESSION_ITERATION_HOLD_H
#define GRADPOOL_COORDINATOR_SESSION_ITERATION_HOLD_H

#include "svc/coordinator/job/job.h"

/* For whom: what an iteration consists of, and for how long it is waited for its end. */
enum hold_scope {
    HOLD_UPDATES, /* an update of each tensor with a rule */
    HOLD_ROUNDS,  /* a round of each tensor of all ranks */
};

/* `code` 0: it is held, until holding_end(). Else nobody is (any more: that, too, is told; -EAGAIN:
 * it may pass; -EOPNOTSUPP: the job has no iterations; -ETIMEDOUT), and `text` says why. May call
 * holding_end(). */
typedef void (*held_fn)(struct service *s, uint64_t context, int code, const char *text);

/* Asks a rank that is in all tensors of the scope; `done` runs later, unless holding_end() comes
 * first. -EAGAIN: there is no such rank now, or somebody else holds one; -ENOMEM. */
int holding_begin(struct job *job, enum hold_scope scope, held_fn done, uint64_t context,
                  struct err *err);
/* One stands at the end of an iteration of this scope. */
bool holding_is_held(const struct job *job, enum hold_scope scope);
/* Its rounds begin again. Of a job without one no effect. */
void holding_end(struct job *job);
/* Likewise, in so long. */
void holding_end_in(struct job *job, uint64_t wait_ns);
/* It cannot be held any more: its connection or its job ends. */
void holding_rank_gone(const struct session *session);
void holding_job_ends(struct job *job);
void holding_handle(struct peer *p, const envelope *message);

#endif
