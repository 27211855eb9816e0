/* Makes pieces and gives them new owners. A new owner hears where a piece stands before anything
 * else (W5), and not before a former owner that was lost can no longer write (the fence). A former
 * owner that has released the piece needs no fence (L19). */
#include "client/lib/declare/route.h"

#include "client/lib/job/state_copy.h"
#include "client/lib/link/link.h"
#include "client/lib/session/process.h"
#include "svc/base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- ranks ---- */

static bool has_blocks(const struct gp_tensor *t, const struct push *push)
{
    return !is_of_state(push->operation) &&
           (push->gradient_bytes > t->bytes || push->result_bytes > t->bytes);
}

/* Blocks are counted by ranks: a round of them cannot be done with others. */
static void break_blocks(struct gp_tensor *t)
{
    bool is_cut = (t->without_commit > 0 && has_blocks(t, &t->open)) ||
                  (t->is_queued && has_blocks(t, &t->next));
    if (!is_cut)
        return;
    char text[ERR_TEXT_BYTES];
    snprintf(text, sizeof text,
             "tensor '%.100s' round %" PRIu64 ": its ranks have changed while their blocks were on "
             "their way",
             t->name, t->round);
    tensor_break(t, -ECONNRESET, text);
}

static void find_peer(struct gp_tensor *t, const uint64_t *ranks)
{
    t->peer = 0;
    while (t->peer < t->job->workers && (t->peer == t->job->rank || !rank_is_in(ranks, t->peer)))
        t->peer++;
}

static void tensor_take_ranks(struct gp_tensor *t, const Gradpool__Wire__TensorRoute *route)
{
    uint64_t ranks[RECORD_MISSING_WORDS];
    uint32_t members = 0;
    if (route->ranks.len != sizeof ranks)
        return;
    memcpy(ranks, route->ranks.data, sizeof ranks);
    for (uint32_t rank = t->job->workers; rank-- > 0;) {
        if (!rank_is_in(ranks, rank))
            continue;
        members++;
        t->first_rank = rank;
    }
    memcpy(t->ranks, ranks, sizeof ranks);
    t->knows_ranks = true;
    find_peer(t, ranks);
    if (members != t->members)
        break_blocks(t);
    t->members = members;
}

/* Copies are told of before anything else, so there must be room for them now. */
static int take_ranks(struct gp_tensor *t, const Gradpool__Wire__TensorRoute *route)
{
    tensor_take_ranks(t, route);
    for (uint32_t i = 0; i < t->pieces_count; i++)
        copy_choose(&t->pieces[i]);
    return t->job->is_elastic ? copy_prepare(t) : 0;
}

/* ---- the first route ---- */

/* Pieces lie end to end and cover the tensor. */
static bool route_is_sound(const struct gp_tensor *t, const Gradpool__Wire__TensorRoute *route)
{
    uint64_t next = 0;
    for (size_t i = 0; i < route->n_pieces; i++) {
        const Gradpool__Wire__Piece *piece = route->pieces[i];
        if (piece->first != next || piece->elements > t->elements - next)
            return false;
        next += piece->elements;
    }
    return route->n_pieces > 0 && route->n_pieces <= PIECES_MAX && next == t->elements;
}

static int add_piece(struct gp_tensor *t, const Gradpool__Wire__Piece *said)
{
    struct piece *p = &t->pieces[t->pieces_count];
    *p = (struct piece){.tensor = t,
                        .first = said->first,
                        .elements = said->elements,
                        .id = said->id,
                        .epoch = said->epoch};
    list_init(&p->unsent);
    p->link = link_get(t->job, said->lane);
    int r = p->link ? piece_take_slot(p) : -ENOMEM;
    if (r == 0)
        t->pieces_count++;
    return r;
}

static void piece_await_entry(struct piece *p)
{
    p->is_entering = p->owes_standing = true;
    p->tensor->entering++;
    link_announce(p->link, p);
}

int route_take(struct gp_tensor *t, const Gradpool__Wire__TensorRoute *route)
{
    if (!route_is_sound(t, route))
        return -EPROTO;
    t->pieces = calloc(route->n_pieces, sizeof *t->pieces);
    if (!t->pieces)
        return -ENOMEM;
    for (size_t i = 0; i < route->n_pieces; i++) {
        int r = add_piece(t, route->pieces[i]);
        if (r < 0)
            return r;
    }
    tensor_take_id(t, route->tensor);
    int r = take_ranks(t, route);
    hold_note_tensor(t);
    for (uint32_t i = 0; r == 0 && t->job->join_is_late && i < t->pieces_count; i++)
        piece_await_entry(&t->pieces[i]);
    return r;
}

/* ---- new owners ---- */

/* What landed before the tensor was whole is as if it had not (W15): its input and landing area are
 * as they were, and everybody hears one answer for all its pieces. */
static void piece_reopen(struct piece *p)
{
    struct gp_tensor *t = p->tensor;
    bool is_committed = p->standing == PIECE_IDLE && p->committed == t->round;
    if (t->without_result == 0 || p->standing == PIECE_ANNOUNCED || p->is_entering)
        return;
    if (is_committed) {
        p->committed--;
        t->without_commit++;
    }
    p->standing = PIECE_ANNOUNCED;
    t->without_result++;
}

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
    piece_retract(p);
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

static void note_left(struct gp_job *job)
{
    list_for_each (node, &job->links) {
        struct link *l = list_entry(node, struct link, node);
        l->is_left |= l->state == LINK_OPEN && link_pieces(l) == 0;
    }
}

void route_change(struct gp_job *job, const Gradpool__Wire__RouteChange *change)
{
    log_info("job '%s' rank %u: new routes for %zu tensors", job->name, job->rank,
             change->n_tensors);
    int r;
    for (size_t i = 0; i < change->n_tensors; i++) {
        const Gradpool__Wire__TensorRoute *route = change->tensors[i];
        struct gp_tensor *t = tensor_find_id(job, route->tensor);
        if (t && (r = take_ranks(t, route)) < 0)
            tensor_break(t, r, gp_last_error());
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
