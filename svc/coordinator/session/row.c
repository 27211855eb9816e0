/* The stored row of a session. */
#include "svc/coordinator/session/session.h"

/* In an elastic job a worker that has left with an error counts as lost after a restart. In another
 * job its state stays the same: the other ranks are informed that the rank has left. */
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
