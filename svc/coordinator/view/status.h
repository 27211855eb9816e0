/* The service and its jobs as operators and the display are shown them. README: K99. */
#ifndef GRADPOOL_COORDINATOR_VIEW_STATUS_H
#define GRADPOOL_COORDINATOR_VIEW_STATUS_H

#include "svc/coordinator/peer/peer.h"

struct job;
struct residents;

/* Round times, losses and limits of a job, for both replies that show a job. */
void view_add_profile(WIRE(JobView) * view, const struct job *job,
                      const struct residents *residents);
/* The view of an operator, but for ranks and limits of jobs: a StatusReply and a JobsReply, the
 * caller's. Figures are the last known ones. -ENOMEM. */
int view_build(struct service *s, envelope **ret_status, envelope **ret_jobs);
/* A peer that waits for this look at aggregators, or an earlier one, is answered in its turn. */
void view_look_over(struct service *s, uint64_t look);
/* One request of the peer that is ready; false: there is none. */
bool view_answer(struct peer *p);
void view_handle_status(struct peer *p, const envelope *message);
void view_handle_jobs(struct peer *p, const envelope *message);

#endif
