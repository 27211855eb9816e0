/* Who is in a job whose workers come and go, and in which tensors' rounds (K40 to K45). */
#ifndef GRADPOOL_COORDINATOR_MEMBERSHIP_MEMBERSHIP_H
#define GRADPOOL_COORDINATOR_MEMBERSHIP_MEMBERSHIP_H

#include "svc/coordinator/job/tensor.h"

/* --- membership.c --- */

/* The session has ended for good; the job goes on without it. */
void members_leave(struct session *session);
/* In the caller's memory: `ranks` of TERMS_RANK_WORDS. */
WIRE(Membership) members_describe(const struct job *job, uint64_t *ranks);
/* Membership to a session, or (NULL) to all. */
void members_tell(const struct job *job, const struct session *to);
void members_handle_resize(struct peer *p, const envelope *message);

/* --- late_join.c --- */

/* Whether what is to be regrouped is now; else regrouping_check() is called when it may be. */
bool entering_may_begin(struct job *job, bool somebody_goes);
/* A rank waits for others to come: it is who can be held. */
void entering_asked_for(struct job *job);
/* Nothing can be, for now. */
void entering_waits(struct job *job);
/* It has been. */
void entering_went_on(struct job *job);

/* --- regroup.c --- */

/* Begins what is to be done, if anything is and can be: to be called when that may have changed.
 * Nothing comes of it for a job whose workers do not come and go. */
void regrouping_check(struct job *job);
void regrouping_check_all(struct service *s);
/* Away, lost or on another connection: what it has said of a change under way holds no more. */
void regrouping_aggregator_gone(const struct aggregator *a);
/* The job ends. */
void regrouping_end(struct job *job);

#endif
