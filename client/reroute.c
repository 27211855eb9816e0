/* Pieces that get a new owner: where they stand is told to it before anything else is (W5), and not
 * before a former owner that was lost can no longer write (the fence). One that has let go needs no
 * fence. README: L19. */
#include "client/job.h"
#include "client/link.h"
#include "client/state_copy.h"
#include "svc/base/log.h"

static struct piece *find_piece(struct gp_tensor *t, uint32_t id)
{
    for (uint32_t i = 0; i < t->pieces_count; i++) {
        if (t->pieces[i].id == id)
            return &t->pieces[i];
    }
    return NULL;
}

static bool is_known(const struct piece *p, const Gradpool__Wire__Piece *said)
{
    return p->epoch == said->epoch && p->link->lane == said->lane && !p->is_orphan &&
           p->link->state != LINK_CLOSED;
}

/* While a fence stands, the lane behind it is the last that was told anything: what has owned the
 * piece since knows no memory to write. */
static struct link *fence_of(const struct piece *p, struct link *former, bool is_released)
{
    if (p->fence || is_released || former == p->link || !former->conn)
        return p->fence;
    return former;
}

/* It may have missed routes: if a lane on the way was lost, that may have been its own. */
static bool has_let_go(const struct piece *p, const Gradpool__Wire__Piece *said)
{
    return p->epoch >= said->lost_epoch && p->epoch < said->epoch;
}

/* The READY waits in the new link until settle_piece() has decided about the old one. */
static void adopt(struct piece *p, const Gradpool__Wire__Piece *said)
{
    struct link *former = p->link, *link = link_get(p->tensor->job, said->lane);
    bool is_released = has_let_go(p, said);
    if (!link || is_known(p, said))
        return;
    /* There and back, and we were told the end; not: another set of ranks, where it is (L20). */
    link->is_left |= link == former && is_released && !p->tensor->job->is_elastic;
    link_retract(p);
    if (p->tensor->job->is_elastic)
        piece_reopen(p);
    piece_new_word(p); /* what the former owner still says under the old one finds nobody (W5) */
    if (!is_released && former != link && !p->lost)
        p->lost = former;
    p->link = link;
    p->copy_told = 0;
    p->epoch = said->epoch;
    p->is_orphan = false;
    p->owes_standing = true;
    p->fence = fence_of(p, former, is_released);
}

/* The lane that lost the piece may only be cut off from the coordinator, and write on: its
 * connection and our memory's registration go before the successor hears from us. Other pieces that
 * it had get their new owners in messages of their own. */
static void settle_piece(struct piece *p)
{
    if (!p->owes_standing)
        return;
    if (p->fence)
        link_fence(p->fence);
    if (p->fence && !p->fence->conn)
        p->fence = NULL;
    link_announce(p->link, p);
}

/* Copies are told of before anything else, so there must be room for them now. */
static void take_ranks(struct gp_tensor *t, const Gradpool__Wire__TensorRoute *route)
{
    tensor_take_ranks(t, route);
    for (uint32_t i = 0; i < t->pieces_count; i++)
        copy_choose(&t->pieces[i]);
    int r = t->job->is_elastic ? copy_prepare(t) : 0;
    if (r < 0)
        tensor_break(t, r, gp_last_error());
}

static void note_left(struct gp_job *job)
{
    list_for_each (node, &job->links) {
        struct link *l = list_entry(node, struct link, node);
        l->is_left |= l->state == LINK_OPEN && link_pieces(l) == 0;
    }
}

void reroute(struct gp_job *job, const Gradpool__Wire__RouteChange *change)
{
    log_info("job '%s' rank %u: new routes for %zu tensors", job->name, job->rank,
             change->n_tensors);
    for (size_t i = 0; i < change->n_tensors; i++) {
        const Gradpool__Wire__TensorRoute *route = change->tensors[i];
        struct gp_tensor *t = tensor_find_id(job, route->tensor);
        if (t)
            take_ranks(t, route);
        for (size_t k = 0; t && k < route->n_pieces; k++) {
            struct piece *p = find_piece(t, route->pieces[k]->id);
            if (p)
                adopt(p, route->pieces[k]);
        }
    }
    list_for_each (node, &job->tensors) {
        struct gp_tensor *t = list_entry(node, struct gp_tensor, node);
        for (uint32_t i = 0; i < t->pieces_count; i++)
            settle_piece(&t->pieces[i]);
    }
    note_left(job);
}
