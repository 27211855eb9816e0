/* Files of this room, for each other. */
#ifndef GRADPOOL_CLIENT_LIB_MEMBERSHIP_INTERNAL_H
#define GRADPOOL_CLIENT_LIB_MEMBERSHIP_INTERNAL_H

#include "client/lib/job/job.h"

/* ---- membership.c ---- */

void membership_init(struct gp_job *job, uint32_t workers);
/* With the job's lock. */
void membership_take(struct gp_job *job, const Gradpool__Wire__Membership *told);

/* ---- unasked.c ---- */

/* In the control thread of the job, without its lock. */
void unasked_handle(void *job, const envelope *message);

/* ---- fork.c ---- */

/* From now on forks are watched for this job. -ENOMEM. */
int fork_watch(struct gp_job *job);
void fork_forget(struct gp_job *job);

/* ---- leave.c ---- */

/* Ends the job's sockets and threads. */
void leave_close(struct gp_job *job);
/* Frees a job without tensors and links. */
void leave_free(struct gp_job *job);

#endif
