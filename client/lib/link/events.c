/* Handles the start and end of connections to lanes: repeats announcements on the next connection,
 * removes fences, and handles the loss of a lane. */
#include "client/lib/job/job_tables.h"
#include "client/lib/job/piece.h"
#include "client/lib/link/link.h"
#include "svc/base/log.h"

#include <errno.h>
#include <string.h>

void link_opened(struct link *l)
{
    if (l->state != LINK_CONNECTING)
        return;
    l->job->connecting--;
    l->state = LINK_OPEN;
    l->attempts = 0;
    l->openings++;
    l->failure.code = 0;
    link_flush(l);
}

/* Announces to their new owners the pieces that waited for the end of this connection (W5). */
static void lift_fences(struct link *l)
{
    for_each_piece_in (p, l->job)
        if (p->fence == l)
            p->fence = NULL;
    link_lift_rows(l);
    link_flush_all(l->job);
}

/* Opens the next connection, and repeats all announcements of the ended one. `uses_ticket`: the
 * worker may use the ticket that the lane has sent (W7); otherwise it requests another one. */
static void revisit(struct link *l, bool uses_ticket)
{
    l->has_ticket &= uses_ticket;
    link_open(l);
    for_each_piece_in (p, l->job) {
        if (p->link != l)
            continue;
        piece_retract(p);
        p->owes_standing = true;
        link_announce(l, p);
    }
}

/* Returns whether another connection to the lane may work. Over a network it may: a network resets
 * connections between running processes, or drops their messages for a long time. Over shared
 * memory a connection ends only with its process. A lane with tables counts the rank of an ended
 * connection as lost (A93). */
static bool is_replaceable(const struct link *l, int error)
{
    bool is_reset = error == -ECONNRESET || error == -ECONNABORTED;
    bool is_cut_off = error == -EHOSTUNREACH || error == -ENETUNREACH || error == -ENETDOWN;
    return l->is_ofi && !job_tables_are_on(l->job, l->lane) &&
           (error == -ETIMEDOUT || is_reset || is_cut_off);
}

/* Replaces a broken connection to a lane that still runs (L93). After a time-out the lane may be
 * lost, and only the coordinator can decide this, so the worker requests the next ticket from the
 * coordinator (L58). A connection is replaced even if the lane has no pieces of this rank: the lane
 * may still serve the pieces to other ranks, and would report this rank as lost (L61). */
static void link_replace(struct link *l, int error)
{
    char name[128];
    link_name(l, name, sizeof name);
    if (error == -ETIMEDOUT)
        err_set(&l->failure, error,
                "%s stopped answering on an open connection; this worker connects again", name);
    else
        err_set(&l->failure, error,
                "the connection to %s at %.100s has ended (%s); this worker connects again", name,
                l->ofi, err_text(error));
    log_info("job '%s' rank %u: %s", l->job->name, l->job->rank, l->failure.text);
    revisit(l, error != -ETIMEDOUT);
}

/* Ends the calls of tables on a lane, after this side has closed the connection. If the link is
 * broken, the tables of the lane have failed before. If the link is fenced, the tables fail here: a
 * new route has named the lane as lost, before the lane closed its side (W5). */
static void link_end_tables(struct link *l)
{
    char name[128];
    if (l->is_hopeless)
        job_tables_end_lane(l->job, l->lane, l->failure.code, l->failure.text);
    else if (!l->job->is_leaving)
        job_tables_lose(l->job, l->lane, 0, link_name(l, name, sizeof name));
}

void link_closed(struct link *l, const struct fabric_event *event)
{
    bool comes_back = l->is_left && !l->job->is_leaving && link_pieces(l) > 0;
    bool is_broken = is_replaceable(l, event->error) && !l->job->is_leaving;
    struct engine *e = &l->job->engine;
    enum link_state was = l->state;
    bool is_ahead = l->wants_open && !l->job->is_leaving && link_pieces(l) == 0;
    *(l->is_ofi ? &e->ofi_conns : &e->shm_conns) -= 1;
    if (was != LINK_OPEN)
        l->job->connecting--;
    l->conn = NULL;
    l->lent = 0;
    memset(l->chosen_round, 0, sizeof l->chosen_round);
    l->settings.kind = 0; /* the next connection starts without settings */
    l->state = LINK_CLOSED;
    l->is_left = false;
    if (was == LINK_OPEN && link_pieces(l) == 0 && !is_broken)
        /* the lane has dropped the job, so its ticket is no longer valid (L19) */
        l->has_ticket = false;
    if (was == LINK_CLOSING)
        link_end_tables(l);
    if (was == LINK_CONNECTING && !l->job->is_leaving)
        link_retry(l, event->error, event->error == -ECONNREFUSED ? event->word : 0);
    else if (was == LINK_OPEN && comes_back)
        /* pieces have returned to the lane while it ended the connection (L19) */
        revisit(l, false);
    else if (was == LINK_OPEN && is_broken)
        link_replace(l, event->error);
    else if (was == LINK_OPEN && is_ahead)
        link_open(l);
    else if (was == LINK_OPEN)
        link_lose(l, event->error, "has closed the connection");
    else if (l->wants_open && !l->job->is_leaving)
        link_open(l);
    lift_fences(l);
}
