/* Two ways to end gp_job_read(), which reads states from lanes. */
#ifndef GRADPOOL_CLIENT_LIB_STATE_STATE_H
#define GRADPOOL_CLIENT_LIB_STATE_STATE_H

#include "client/lib/job/job.h"

/* Ends a running gp_job_read(). Called with the job's lock held. */
void state_cancel_read(struct gp_job *job);
void state_abandon_read_in_child(struct gp_job *job);

#endif
