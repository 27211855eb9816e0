/* Reports ranks that have left to the lanes of their job. RULES.md: K55. */
#ifndef GRADPOOL_COORDINATOR_SESSION_GOODBYE_H
#define GRADPOOL_COORDINATOR_SESSION_GOODBYE_H

#include "svc/coordinator/job/job.h"

int leavers_create(struct service *s);
void leavers_destroy(struct service *s);
/* After a restart, reports again the ranks that had left before. */
void leavers_start(struct service *s);
/* Schedules a report of the ranks that have left to all lanes of the job. Called when a rank leaves
 * or a lane gets pieces. Does nothing for elastic jobs, where regroupings contain these ranks. */
void leavers_changed(struct job *job);

#endif
