/* Replies to `gradpool status` and `gradpool jobs`, and the state for the display. RULES.md:
 * K99. */
#ifndef GRADPOOL_COORDINATOR_VIEW_STATUS_H
#define GRADPOOL_COORDINATOR_VIEW_STATUS_H

#include "svc/coordinator/peer/peer.h"

struct job;
struct residents;

/* Sets round times, losses and limits of a job in the replies to `jobs` and `explain`. */
void view_add_profile(WIRE(JobView) * view, const struct job *job,
                      const struct residents *residents);
/* Creates a StatusReply and a JobsReply for the display from the last measurements. The replies
 * show an operator's view, without ranks and limits of jobs. The caller owns both replies. Returns
 * 0 or -ENOMEM. */
int view_build(struct service *s, envelope **ret_status, envelope **ret_jobs);
/* Called when a measurement has ended. Marks the requests that wait for measurement `look`, or for
 * an earlier one, as ready. Each ready request is answered in the next turn of its peer. */
void view_look_over(struct service *s, uint64_t look);
/* Answers one ready request of the peer. Returns false if no request was ready. */
bool view_answer(struct peer *p);
void view_handle_status(struct peer *p, const envelope *message);
void view_handle_jobs(struct peer *p, const envelope *message);

#endif
