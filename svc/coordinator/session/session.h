/* A session is the membership of one worker in a job. It is joined, away, left or lost. RULES.md:
 * K6. */
#ifndef GRADPOOL_COORDINATOR_SESSION_SESSION_H
#define GRADPOOL_COORDINATOR_SESSION_SESSION_H

#include "svc/coordinator/job/job.h"

struct session *session_create(struct job *job, uint32_t rank, const char *node);
void session_destroy(struct session *session);
void session_attach(struct session *session, struct peer *p);
/* Handles the end of the connection. The worker is lost if it does not resume within `grace_ns` or
 * if its process is dead. `was_closed`: the connection was closed, not reset. */
void session_away(struct session *session, uint64_t grace_ns, bool was_closed);
/* Shortens the time of a worker that is away to `within_ns`, because another process requests its
 * rank. */
void session_claimed(struct session *session, uint64_t within_ns);
/* Handles a lane's report that its connection to the worker has ended. The worker may connect again
 * (K6). */
void session_broken(struct session *session, uint32_t lane);
/* Handles a lane's report that its connection to the worker has ended for good. If the job
 * continues after losses, the worker is lost and gets a JobFailure; otherwise the job fails. */
void session_cut_off(struct session *session, uint32_t lane);
/* The worker's host has been silent for `silent_ns`, so the worker is lost. */
void session_silent(struct session *session, uint64_t silent_ns);
/* The worker's process has ended and all its messages are handled, so the worker is lost. */
void session_process_ended(struct session *session);
/* Returns the CPU time that the coordinator has used for all sessions of the job, including ended
 * ones. */
uint64_t session_control_ns(const struct job *job);
/* Ends the session after a goodbye. */
void session_leave(struct session *session);
void session_row(const struct session *session, struct store_row *ret_row);
int session_restore(struct service *s, const struct store_session *row);
const char *session_state_name(enum session_state state);
/* Writes "rank 2 of job resnet (node7, pid 4242)" and returns the buffer. SESSION_NAME_BYTES are
 * enough. */
const char *session_name(const struct session *session, char *buffer, size_t buffer_bytes);
/* Like session_name(), with a buffer that lives until the end of the block. */
#define SESSION_NAME(session) \
    session_name(session, (char[SESSION_NAME_BYTES]){0}, SESSION_NAME_BYTES)

/* Frees all sessions of a job that is about to be freed. */
void sessions_destroy(struct job *job);

#endif
