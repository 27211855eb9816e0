/* Opens and closes a worker's connection on a lane, and decides whether another connection may
 * replace this connection. RULES.md: A3, A70. */
#include "svc/lane/worker/worker.h"

#include "svc/lane/state/replica.h"
#include "svc/lane/turn/account.h"

#include <stdio.h>
#include <string.h>

void worker_open(struct worker *w, struct fabric *fabric, struct fabric_conn *conn)
{
    w->state = WORKER_OPEN;
    w->is_gone = w->has_settings = false;
    w->posted = 0;
    memset(w->known_sets, 0, sizeof w->known_sets);
    w->fabric = fabric;
    w->conn = conn;
    w->job->lane->connections += !worker_is_holder(w);
    account_connection(w->job, fabric, 1);
    snprintf(w->peer, sizeof w->peer, "%s", fabric_peer(conn));
}

/* Lent memory and announcements end with the connection (W4, W5). */
void worker_close(struct worker *w, enum worker_state state)
{
    if (!w->conn)
        return;
    w->conn = NULL;
    lending_forget(w);
    lending_disconnect(w);
    replica_forget(w);
    worker_drop_payload(w);
    list_for_each_safe (node, &w->owed) {
        list_remove(node);
    }
    list_remove(&w->tell_link);
    w->owes_failure = false;
    w->owes_passed = 0;
    w->state = state;
    w->job->lane->connections -= !worker_is_holder(w);
    account_connection(w->job, w->fabric, -1);
}

/* A connection over shared memory ends only with its process, so it is never replaced. */
bool worker_is_replaceable(const struct worker *w)
{
    return w->state == WORKER_OPEN && !w->is_gone && fabric_peer_pid(w->conn) == 0;
}

bool worker_may_return(const struct worker *w)
{
    return !worker_is_holder(w) && (w->conn ? worker_is_replaceable(w) : w->state == WORKER_AWAY);
}
