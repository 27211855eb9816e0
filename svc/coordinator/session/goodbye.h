/* Goodbyes of ranks, reported to the lanes of their job. RULES.md: K55. */
#ifndef GRADPOOL_COORDINATOR_SESSION_GOODBYE_H
#define GRADPOOL_COORDINATOR_SESSION_GOODBYE_H

#include "svc/coordinator/job/job.h"

int leavers_create(struct service *s);
void leavers_destroy(struct service *s);
/* Reports again, after a restart, the ranks that had left before. */
void leavers_start(struct service *s);
/* Reports the ranks that have left to all lanes of the job, soon: called when a rank leaves, or a
 * lane gets pieces. No effect on elastic jobs, where regroupings do it. */
void leavers_changed(struct job *job);

#endif
