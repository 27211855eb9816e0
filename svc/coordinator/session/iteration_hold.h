/* A hold stops one rank of a job at the end of an iteration. Without this rank no round of all
 * ranks begins. Therefore every round without a result belongs to this iteration or to an earlier
 * iteration. RULES.md: K51. */
#ifndef GRADPOOL_COORDINATOR_SESSION_ITERATION_HOLD_H
#define GRADPOOL_COORDINATOR_SESSION_ITERATION_HOLD_H

#include "svc/coordinator/job/job.h"

/* Purpose of a hold. The purpose determines the meaning of an iteration, and the longest wait for
 * the end of an iteration. */
enum hold_scope {
    HOLD_UPDATES, /* an iteration is one update of each tensor that has an update rule */
    HOLD_ROUNDS,  /* an iteration is one round of each tensor that all ranks push */
};

/* Receives the result of a hold. `code` 0: the rank is held until holding_end(). Otherwise no rank
 * is held, and `text` has the reason. -EAGAIN: temporary. -EOPNOTSUPP: the job has no iterations.
 * -ETIMEDOUT. -ECONNRESET: the job has ended. The function may call holding_end(). */
typedef void (*held_fn)(struct service *s, uint64_t context, int code, const char *text);

/* Requests that a rank with all tensors of the scope stops at the end of its iteration. `done` is
 * called later, unless holding_end() is called first. Returns 0, -ENOMEM, or -EAGAIN if no rank has
 * these tensors now or a hold is in progress. */
int holding_begin(struct job *job, enum hold_scope scope, held_fn done, uint64_t context,
                  struct err *err);
/* Returns whether a rank is held for this scope. */
bool holding_is_held(const struct job *job, enum hold_scope scope);
/* Ends the hold, so that the rank continues. Has no effect without a hold. */
void holding_end(struct job *job);
/* Ends the hold in `wait_ns`, if a rank is held. */
void holding_end_in(struct job *job, uint64_t wait_ns);
/* Two functions that end a hold with an error. holding_rank_gone(): the connection of the rank has
 * ended. holding_job_ends(): the job has ended. */
void holding_rank_gone(const struct session *session);
void holding_job_ends(struct job *job);
void holding_handle(struct peer *p, const envelope *message);

#endif
