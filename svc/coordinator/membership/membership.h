/* Membership of elastic jobs: the ranks that belong to the job, and the ranks of a tensor whose
 * pushes complete its rounds (K40 to K45). */
#ifndef GRADPOOL_COORDINATOR_MEMBERSHIP_MEMBERSHIP_H
#define GRADPOOL_COORDINATOR_MEMBERSHIP_MEMBERSHIP_H

#include "svc/coordinator/job/tensor.h"

/* --- membership.c --- */

/* Removes the worker of the ended session from the membership. The job continues. */
void members_leave(struct session *session);
/* Returns the membership as a message. The message points to `ranks` (TERMS_RANK_WORDS words),
 * which the caller owns. */
WIRE(Membership) members_describe(const struct job *job, uint64_t *ranks);
/* Sends the membership of an elastic job to one session, or to all sessions if `to` is NULL. */
void members_tell(const struct job *job, const struct session *to);
/* Sets the number of workers of an elastic job. `grower`: the worker that requests the resize and
 * waits for its answer; NULL: the service itself. Returns 0 or a negative errno. */
int members_resize_to(struct job *job, uint32_t workers, const struct session *grower,
                      struct err *err);
void members_handle_resize(struct peer *p, const envelope *message);
/* Lets all workers sleep before their next step, or wakes them. The job has step records. Returns 0
 * or a negative errno of the store. */
int members_rest(struct job *job, bool rests, struct err *err);

/* --- late_join.c --- */

/* Returns whether late workers enter only between two iterations, because the job has step records.
 * If ranks leave, the regrouping then begins at once, without the late workers. */
bool entering_is_strict(const struct job *job);
/* Returns whether the rank is a late worker that declares and connects to lanes before its entry
 * (K108). Its declares are then answered at once, and lanes keep its connections. */
bool entering_is_ahead(const struct job *job, uint32_t rank);
/* Returns whether the next regrouping may add the rank to the tensors that the rank has declared.
 * The rank must be a member of the job. */
bool entering_may(const struct job *job, uint32_t rank);
/* Handles an EnterRequest. */
void entering_handle(struct peer *p, const envelope *message);
/* Returns whether a regrouping (a change of the ranks on lanes) may begin now. If not, a rank will
 * be held at the end of its iteration, and regrouping_check() is called again afterwards. */
bool entering_may_begin(struct job *job, bool somebody_goes);
/* Called after a resize that adds ranks. Ends an attempt to hold a rank, because the next attempt
 * can hold the rank that requested the resize: this rank waits for the reply. */
void entering_asked_for(struct job *job);
/* Called when no regrouping is needed, or none can begin now. If all late workers have left, ends
 * the hold. */
void entering_waits(struct job *job);
/* Called at the end of a regrouping. When the late workers have entered all tensors, ends the hold,
 * and the held rank continues. */
void entering_went_on(struct job *job);

/* --- regroup.c --- */

/* Begins a regrouping of an elastic job, or of a job with stages, if one is needed and possible.
 * Called after each change of these conditions. Has no effect on other jobs. */
void regrouping_check(struct job *job);
void regrouping_check_all(struct service *s);
/* Makes the lanes close their connections to a late worker that has left before its entry. */
void regrouping_let_go(struct job *job, uint32_t rank);
/* Called when an aggregator is away or lost, or has a new connection. If a regrouping waits for the
 * aggregator's lanes to release pieces, the regrouping ends and begins again later. */
void regrouping_aggregator_gone(const struct aggregator *a);
/* Frees the regrouping of a job that is ending. */
void regrouping_end(struct job *job);

#endif
