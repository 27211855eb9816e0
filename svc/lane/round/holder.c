/* Handles offers, changes and losses of the replica holder of a piece's state, and their effect on
 * the open round. RULES.md: A31, A49. */
#include "svc/lane/round/holder.h"

#include "svc/lane/job/table.h"
#include "svc/lane/piece/rest.h"
#include "svc/lane/round/round.h"
#include "svc/lane/round/standing.h"

#include <string.h>

int replica_hear(struct worker *w, const struct record_backup *told)
{
    struct piece *p = piece_find(w->job, told->piece);
    if (!p || !p->parameters || p->elements == 0)
        /* a piece without state needs no copy; an offer for an unknown piece is ignored */
        return 0;
    bool may = replica_may_keep(p, w);
    if (!may && worker_is_holder(w))
        replica_hold_offer(p->parameters, w, told);
    int error = may ? replica_accept(p, w, told) : 0;
    if (may && error == 0) {
        round_resume(p);
        release_tell(p->job->lane);
    }
    return error;
}

/* Returns whether reads or writes of the copy may be posted. */
static bool is_in_use(const struct piece *p)
{
    const struct parameters *q = p->parameters;
    return p->state != PIECE_COLLECTING && (q->replica.is_taken || q->fetched > 0);
}

static void cut_off(struct piece *p)
{
    bool was_in_use = is_in_use(p);
    replica_drop(&p->parameters->replica);
    if (was_in_use)
        round_interrupt(p);
}

static void change_holder(struct piece *p, uint32_t holder)
{
    struct parameters *q = p->parameters;
    struct worker *former = q->replica.worker;
    q->has_next_holder = false;
    if (q->holder == holder)
        return;
    q->holder = holder;
    q->replica.since = RECORD_ROUND_NONE;
    memset(q->replica.rounds, 0, sizeof q->replica.rounds);
    cut_off(p);
    replica_release(p, former);
    if (former && worker_is_holder(former) && p->state != PIECE_COLLECTING)
        /* operations in the former holder's memory may never end while its connection is open */
        fabric_disconnect(former->conn);
    replica_take_offer(p);
}

void replica_set_holder(struct piece *p, uint32_t holder, bool when_known)
{
    struct parameters *q = p->parameters;
    q->next_holder = holder;
    q->waits_for_former = when_known;
    q->has_next_holder =
        p->round == 0 && !q->are_set && (when_known || q->replica.worker) && q->holder != holder;
    if (!q->has_next_holder) {
        change_holder(p, holder);
        round_resume(p);
    } else if (!when_known && worker_is_holder(q->replica.worker)) {
        /* the lane ends the connection of a lost holder, whose host may never report the end */
        fabric_disconnect(q->replica.worker->conn);
    }
}

/* The next holder replaces a lost holder at once, so that no round waits for the lost holder. If
 * the lane still has to read the state from the former holder, the change stays pending. */
void replica_cut_off(struct worker *w)
{
    list_for_each_safe_entry (struct piece, p, &w->job->pieces, link) {
        struct parameters *q = p->parameters;
        if (!q || q->replica.worker != w)
            continue;
        bool has_next = q->has_next_holder && !q->waits_for_former && !p->is_dropped;
        cut_off(p); /* this call may free a dropped piece */
        if (has_next) {
            change_holder(p, q->next_holder);
            round_resume(p);
        }
    }
}

void replica_know(struct piece *p)
{
    struct parameters *q = p->parameters;
    if (q && q->has_next_holder)
        change_holder(p, q->next_holder);
}
