/* Ranks that have said goodbye, told to the lanes of their job. README: K55. */
#ifndef GRADPOOL_COORDINATOR_SESSION_GOODBYE_H
#define GRADPOOL_COORDINATOR_SESSION_GOODBYE_H

#include "svc/coordinator/job/job.h"

void leavers_start(struct service *s);
/* A rank has left, or a lane has pieces of the job that it had not before: lanes hear soon who will
 * not come. Where workers come and go regroupings tell it. */
void leavers_changed(struct job *job);

#endif
