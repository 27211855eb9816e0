/* Sends to the lanes of a job the ranks that have left. RULES.md: K55. */
#ifndef GRADPOOL_COORDINATOR_SESSION_GOODBYE_H
#define GRADPOOL_COORDINATOR_SESSION_GOODBYE_H

#include "svc/coordinator/job/job.h"

int leavers_create(struct service *s);
void leavers_destroy(struct service *s);
/* After a restart, informs lanes of the ranks that left before the restart. */
void leavers_start(struct service *s);
/* Schedules a message to all lanes of the job about the ranks that have left. Called when a rank
 * leaves or a lane receives pieces. Does nothing for elastic jobs: their lanes learn of these ranks
 * from regroupings. */
void leavers_changed(struct job *job);

#endif
