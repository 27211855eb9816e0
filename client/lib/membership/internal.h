/* Functions that the files of client/lib/membership share. */
#ifndef GRADPOOL_CLIENT_LIB_MEMBERSHIP_INTERNAL_H
#define GRADPOOL_CLIENT_LIB_MEMBERSHIP_INTERNAL_H

#include "client/lib/job/job.h"

/* ---- membership.c ---- */

void membership_init(struct gp_job *job, uint32_t workers);
/* Called with the job's lock held. */
void membership_take(struct gp_job *job, const Gradpool__Wire__Membership *told);

/* ---- unasked.c ---- */

/* Called in the control thread of the job, without the job's lock. */
void unasked_handle(void *job, const envelope *message);

/* ---- fork.c ---- */

/* Adds the job to the list for forks. Returns 0 or -ENOMEM. */
int fork_watch(struct gp_job *job);
void fork_forget(struct gp_job *job);

/* ---- leave.c ---- */

/* Ends the sockets and threads of the job. */
void leave_close(struct gp_job *job);
/* Frees a job without tensors and links. */
void leave_free(struct gp_job *job);

#endif
