/* Ranks that have said goodbye, told to the lanes of their job. README: K55. */
#ifndef GRADPOOL_COORDINATOR_SESSION_GOODBYE_H
#define GRADPOOL_COORDINATOR_SESSION_GOODBYE_H

#include "svc/coordinator/job/job.h"

int leavers_create(struct service *s);
void leavers_destroy(struct service *s);
/* Lanes hear again of ranks that had left before this start. */
void leavers_start(struct service *s);
/* A rank has left, or a lane has pieces of the job that it had not before: lanes hear soon who will
 * not come. Where workers come and go regroupings tell it. */
void leavers_changed(struct job *job);

#endif
