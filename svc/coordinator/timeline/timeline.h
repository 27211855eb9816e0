/* Timelines of jobs in training. Workers and lanes record their rounds. The caller receives the
 * records from the coordinator. RULES.md: K54. */
#ifndef GRADPOOL_COORDINATOR_TIMELINE_TIMELINE_H
#define GRADPOOL_COORDINATOR_TIMELINE_TIMELINE_H

#include "svc/coordinator/job/job.h"

void timelines_handle_request(struct peer *p, const envelope *message);
void timelines_handle_next(struct peer *p, const envelope *message);
void timelines_handle_told(struct peer *p, const envelope *message);
/* Ends the timelines of a peer that is being freed. Sources stop recording. */
void timelines_peer_gone(const struct peer *p);
/* Frees all timelines at the end of the service, without messages. */
void timelines_destroy(struct service *s);

#endif
