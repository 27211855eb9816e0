/* Timelines of jobs that train: workers and lanes record their rounds, who asked fetches them
 * through here. README: K54. */
#ifndef GRADPOOL_COORDINATOR_TIMELINE_TIMELINE_H
#define GRADPOOL_COORDINATOR_TIMELINE_TIMELINE_H

#include "svc/coordinator/job/job.h"

void timelines_handle_request(struct peer *p, const envelope *message);
void timelines_handle_next(struct peer *p, const envelope *message);
void timelines_handle_told(struct peer *p, const envelope *message);
/* Who asked is gone: nothing of it is recorded any more. */
void timelines_peer_gone(const struct peer *p);
/* At the end of the service: nobody is told anything. */
void timelines_destroy(struct service *s);

#endif
