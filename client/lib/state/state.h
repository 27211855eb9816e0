/* Calls of one rank that read or write states on lanes through the coordinator: gp_job_read(),
 * gp_table_export(), gp_table_import(). A job has one such call at a time. */
#ifndef GRADPOOL_CLIENT_LIB_STATE_STATE_H
#define GRADPOOL_CLIENT_LIB_STATE_STATE_H

#include "client/lib/job/job.h"

struct channel;

/* Begins a call. Returns false if the job has such a call, or is being left. */
bool state_take_turn(struct gp_job *job);
/* Returns whether gp_job_leave() waits for the end of the call. */
bool state_is_left(struct gp_job *job);
/* Ends the call, and its connection to the coordinator (NULL: none). */
void state_end_turn(struct gp_job *job, struct channel *channel);

/* Ends a gp_job_read() that runs in another thread, with an error. Called with the job's lock
 * held. */
void state_cancel_read(struct gp_job *job);
void state_abandon_read_in_child(struct gp_job *job);

#endif
