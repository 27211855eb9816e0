/* Workers of a job: connected, away, gone. README: K6. */
#ifndef GRADPOOL_COORDINATOR_SESSION_SESSION_H
#define GRADPOOL_COORDINATOR_SESSION_SESSION_H

#include "svc/coordinator/job/job.h"

struct session *session_create(struct job *job, uint32_t rank, const char *node);
void session_destroy(struct session *session);
void session_attach(struct session *session, struct peer *p);
/* Its connection is gone; it is lost when it has not come back in time, or its process is dead.
 * `was_closed`: the connection was not reset. */
void session_away(struct session *session, uint64_t grace_ns, bool was_closed);
/* Another process has come for the rank of one that is away: it is lost when it has not come back
 * in this time. */
void session_claimed(struct session *session, uint64_t within_ns);
/* A lane has lost its connection to this worker, which may make another (K6). */
void session_broken(struct session *session, uint32_t lane);
/* Its connection to a lane has ended: it leaves a job that continues, and is told so. */
void session_cut_off(struct session *session, uint32_t lane);
/* Its host has answered nothing for so long, and will not. */
void session_silent(struct session *session, uint64_t silent_ns);
/* Its process has ended, and all is read that it sent. */
void session_process_ended(struct session *session);
/* Of the coordinator's thread, for all sessions of the job that are or were. */
uint64_t session_control_ns(const struct job *job);
/* It has said goodbye. */
void session_leave(struct session *session);
void session_row(const struct session *session, struct store_row *ret_row);
int session_restore(struct service *s, const struct store_session *row);
const char *session_state_name(enum session_state state);
/* "rank 2 of job resnet (node7, pid 4242)"; SESSION_NAME_BYTES are enough. Returns the buffer. */
const char *session_name(const struct session *session, char *buffer, size_t buffer_bytes);
/* The same, in memory of the block around it. */
#define SESSION_NAME(session) \
    session_name(session, (char[SESSION_NAME_BYTES]){0}, SESSION_NAME_BYTES)

/* All of a job that is freed next. */
void sessions_destroy(struct job *job);

#endif
