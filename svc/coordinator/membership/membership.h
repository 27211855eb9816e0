/* Membership of elastic jobs: which ranks are in the job, and which ranks make the rounds of each
 * tensor (K40 to K45). */
#ifndef GRADPOOL_COORDINATOR_MEMBERSHIP_MEMBERSHIP_H
#define GRADPOOL_COORDINATOR_MEMBERSHIP_MEMBERSHIP_H

#include "svc/coordinator/job/tensor.h"

/* --- membership.c --- */

/* Removes the worker of the ended session from the membership. The job continues. */
void members_leave(struct session *session);
/* Returns the membership as a message that points to `ranks` (TERMS_RANK_WORDS), which belong to
 * the caller. */
WIRE(Membership) members_describe(const struct job *job, uint64_t *ranks);
/* Sends the membership of an elastic job to one session, or to all sessions (`to` NULL). */
void members_tell(const struct job *job, const struct session *to);
void members_handle_resize(struct peer *p, const envelope *message);

/* --- late_join.c --- */

/* Returns whether a regrouping may begin now. If not, a rank is being held at the end of its
 * iteration, and regrouping_check() is called again when it is. */
bool entering_may_begin(struct job *job, bool somebody_goes);
/* Ends the wait for a hold after a resize that adds ranks: the rank that called it waits, and can
 * be held at once. */
void entering_asked_for(struct job *job);
/* Handles a plan that is empty or cannot begin now. */
void entering_waits(struct job *job);
/* Handles the end of a regrouping. The held rank continues when the late workers have entered all
 * tensors. */
void entering_went_on(struct job *job);

/* --- regroup.c --- */

/* Begins a regrouping of an elastic job if one is needed and possible. Called whenever one of these
 * may have changed. Does nothing for other jobs. */
void regrouping_check(struct job *job);
void regrouping_check_all(struct service *s);
/* Handles an aggregator that is away, lost, or on another connection. A regrouping that waits for
 * releases of its lanes fails. */
void regrouping_aggregator_gone(const struct aggregator *a);
/* Frees the regrouping of a job that is ending. */
void regrouping_end(struct job *job);

#endif
