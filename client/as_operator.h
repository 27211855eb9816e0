/* Requests of a worker about its own job beside its session, as an operator makes them: a timeline,
 * and the state that lanes keep. For the files of this folder only. README: L37, L90. */
#ifndef GRADPOOL_CLIENT_AS_OPERATOR_H
#define GRADPOOL_CLIENT_AS_OPERATOR_H

#include "client/job.h"

/* A channel to the coordinator as an operator has one, noted in `*fd` (-1) under the job's lock
 * from its socket on. On failure `*fd` may be open, and `*ret_channel` set: the caller closes. */
int job_open_operator(struct gp_job *job, int *fd, struct channel **ret_channel, struct err *err);
/* Of all jobs of a name whose is this one: without a key nobody's. */
const char *job_tenant(const struct gp_job *job);

/* job_timeline.c */
/* Where GRADPOOL_TIMELINE says so. */
void job_timeline_from_environment(struct gp_job *job);
void job_timeline_end(struct gp_job *job);
void job_timeline_abandon_in_child(struct gp_job *job);

/* job_state.c */
/* With the lock: a read that goes on ends. */
void job_read_cancel(struct gp_job *job);
void job_read_abandon_in_child(struct gp_job *job);

#endif
