/* Membership of elastic jobs: which ranks are members, and in which tensors' rounds (K40 to
 * K45). */
#ifndef GRADPOOL_COORDINATOR_MEMBERSHIP_MEMBERSHIP_H
#define GRADPOOL_COORDINATOR_MEMBERSHIP_MEMBERSHIP_H

#include "svc/coordinator/job/tensor.h"

/* --- membership.c --- */

/* Removes the ended session from the membership; the job continues without the worker. */
void members_leave(struct session *session);
/* Membership as a message that points to `ranks`, TERMS_RANK_WORDS of the caller. */
WIRE(Membership) members_describe(const struct job *job, uint64_t *ranks);
/* Sends the membership of an elastic job to one session, or (`to` NULL) to all. */
void members_tell(const struct job *job, const struct session *to);
void members_handle_resize(struct peer *p, const envelope *message);

/* --- late_join.c --- */

/* Whether a regrouping may begin now. Else a hold of a rank is under way, and its end calls
 * regrouping_check(). */
bool entering_may_begin(struct job *job, bool somebody_goes);
/* Ends the wait for a hold, after a resize that adds ranks: its caller waits and can be held at
 * once. */
void entering_asked_for(struct job *job);
/* Handles a plan that is empty, or cannot begin now. */
void entering_waits(struct job *job);
/* Handles the end of a regrouping: the held rank continues when the late workers have all
 * tensors. */
void entering_went_on(struct job *job);

/* --- regroup.c --- */

/* Begins a regrouping of an elastic job, if one is due and possible; called whenever either may
 * have changed. No effect on other jobs. */
void regrouping_check(struct job *job);
void regrouping_check_all(struct service *s);
/* Handles an aggregator that is away, lost, or on another connection: a regrouping that waits for
 * its releases fails. */
void regrouping_aggregator_gone(const struct aggregator *a);
/* Frees the regrouping of a job that ends. */
void regrouping_end(struct job *job);

#endif
