/* A session is the membership of one worker in a job. Its state is joined, away, left or lost.
 * RULES.md: K6. */
#ifndef GRADPOOL_COORDINATOR_SESSION_SESSION_H
#define GRADPOOL_COORDINATOR_SESSION_SESSION_H

#include "svc/coordinator/job/job.h"

struct session *session_create(struct job *job, uint32_t rank, const char *node);
void session_destroy(struct session *session);
void session_attach(struct session *session, struct peer *p);
/* Called when the connection has ended. The worker is lost if it does not resume within `grace_ns`,
 * or if its process is dead. */
void session_away(struct session *session, uint64_t grace_ns, enum channel_end end);
/* Limits the remaining time of a disconnected worker to `within_ns`, for example because another
 * process requests its rank. */
void session_claimed(struct session *session, uint64_t within_ns);
/* Called when a lane's connection to the worker has ended. The worker may connect again (K6). */
void session_broken(struct session *session, uint32_t lane);
/* Called when a lane's connection to the worker has ended and must not be replaced. If the job
 * continues after losses, the worker is lost and receives JobFailure. Otherwise the job fails. */
void session_cut_off(struct session *session, uint32_t lane);
/* Makes the worker lost, because its host was silent for `silent_ns`. */
void session_silent(struct session *session, uint64_t silent_ns);
/* Makes the worker lost, because a newer process of its rank joins. */
void session_replaced(struct session *session);
/* Makes the worker lost: its process has ended, and all messages from it are handled. */
void session_process_ended(struct session *session);
/* Returns the CPU time that the coordinator has spent on all sessions of the job, including ended
 * sessions. */
uint64_t session_control_ns(const struct job *job);
/* Ends the session of a worker that has said Goodbye. */
void session_leave(struct session *session);
void session_row(const struct session *session, struct store_row *ret_row);
int session_restore(struct service *s, const struct store_session *row);
const char *session_state_name(enum session_state state);
/* Writes a name such as "rank 2 of job resnet (node7, pid 4242)" and returns the buffer.
 * SESSION_NAME_BYTES are enough. */
const char *session_name(const struct session *session, char *buffer, size_t buffer_bytes);
/* Like session_name(), with a buffer that is valid until the end of the block. */
#define SESSION_NAME(session) \
    session_name(session, (char[SESSION_NAME_BYTES]){0}, SESSION_NAME_BYTES)

/* Frees all sessions of a job that is being freed. */
void sessions_destroy(struct job *job);

#endif
