/* The stored row of a session. */
#include "svc/coordinator/session/session.h"

/* A worker that has left with an error is lost after a restart. Without an elastic job the other
 * ranks are informed that the rank has left, also after a restart. */
static enum session_state session_stored_state(const struct session *session)
{
    return session->has_failed && session->job->terms->is_elastic ? SESSION_LOST : session->state;
}

void session_row(const struct session *session, struct store_row *ret_row)
{
    *ret_row = (struct store_row){.table = STORE_SESSION};
    ret_row->session = (struct store_session){.job = session->job->id,
                                              .rank = session->rank,
                                              .session = session->number,
                                              .identity = session->identity,
                                              .pid = session->pid,
                                              .state = session_stored_state(session),
                                              .node = session->node,
                                              .entered = session->entered,
                                              .was_removed = session->was_removed};
}
