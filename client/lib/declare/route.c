/* Creates pieces and changes their owners. A worker first sends a new owner the state of the
 * piece's round (W5). A former owner that was lost may still write to the worker's memory. In this
 * case the new owner receives no record until the connection to the former owner is closed (the
 * fence). No fence is needed if the former owner has released the piece (L19). */
#include "client/lib/declare/route.h"

#include "client/lib/job/job_tables.h"
#include "client/lib/job/state_copy.h"
#include "client/lib/link/link.h"
#include "svc/base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- ranks ---- */

static bool route_has_blocks(const struct gp_tensor *t, const struct push *push)
{
    return !is_of_state(push->operation) &&
           (push->gradient_bytes > t->bytes || push->result_bytes > t->bytes);
}

/* Fails an open round whose operation has one block for each rank, because such a round cannot
 * continue with other ranks. */
static void route_break_blocks(struct gp_tensor *t)
{
    bool is_cut = (t->without_commit > 0 && route_has_blocks(t, &t->open)) ||
                  (t->is_queued && route_has_blocks(t, &t->next));
    if (!is_cut)
        return;
    char text[ERR_TEXT_BYTES];
    snprintf(text, sizeof text,
             "tensor '%.100s' round %" PRIu64 ": its ranks have changed while blocks of the round "
             "were in flight",
             t->name, t->round);
    tensor_break(t, -ECONNRESET, text);
}

static void route_set_ranks(struct gp_tensor *t, const void *ranks)
{
    uint32_t members = t->members;
    memcpy(t->ranks, ranks, sizeof t->ranks);
    t->knows_ranks = true;
    tensor_count_ranks(t, t->ranks);
    if (t->members != members)
        route_break_blocks(t);
}

/* Sets round and number of updates on a rank that was idle in earlier stages and has no open round.
 * The rank skips all rounds up to `committed`, which other ranks have completed (L83). */
static void route_set_round(struct gp_tensor *t, const Gradpool__Wire__TensorRoute *route)
{
    if (t->job->is_elastic || route->committed <= t->round || t->without_commit > 0)
        return;
    t->round = route->committed;
    t->knows_steps = route->steps > 0;
    t->steps[t->round % 3] = t->knows_steps ? route->steps - 1 : 0;
    for_each_piece (p, t)
        p->committed = t->round;
}

/* Sets the ranks of the tensor. If the ranks may change, this function allocates the memory for
 * copies of states, because its addresses are sent before all other records. */
static int route_take_ranks(struct gp_tensor *t, const Gradpool__Wire__TensorRoute *route)
{
    if (route->ranks.len == sizeof t->ranks)
        route_set_ranks(t, route->ranks.data);
    route_set_round(t, route);
    for_each_piece (p, t)
        copy_choose(p);
    return t->knows_ranks ? copy_prepare(t) : 0;
}

/* ---- the first route ---- */

/* Returns whether the pieces are consecutive and cover the tensor. */
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

static int route_add_piece(struct gp_tensor *t, const Gradpool__Wire__Piece *said)
{
    struct piece *p = &t->pieces[t->pieces_count];
    *p = (struct piece){.tensor = t,
                        .first = said->first,
                        .elements = said->elements,
                        .id = said->id,
                        .epoch = said->epoch};
    list_init(&p->unsent);
    p->link = link_get(t->job, said->lane);
    int error = p->link ? piece_take_slot(p) : -ENOMEM;
    if (error == 0)
        t->pieces_count++;
    return error;
}

/* Returns whether this rank is idle in the present stage of its job (L83). */
static bool route_is_idle(const struct piece *p)
{
    return !p->tensor->job->is_elastic && tensor_is_outside(p->tensor);
}

static void route_await_entry(struct piece *p)
{
    p->is_entering = p->owes_standing = true;
    p->is_outside = tensor_is_outside(p->tensor);
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
        int error = route_add_piece(t, route->pieces[i]);
        if (error < 0)
            return error;
    }
    tensor_take_id(t, route->tensor);
    int error = route_take_ranks(t, route);
    hold_note_tensor(t);
    for_each_piece (p, t)
        p->is_outside = route_is_idle(p);
    if (error < 0 || !t->job->join_is_late)
        return error;
    for_each_piece (p, t)
        route_await_entry(p);
    return 0;
}

/* ---- new owners ---- */

/* Announces a landed piece again, because a piece counts as announced until the results of all
 * pieces of its tensor have arrived (W15). Input and landing area stay the same, and the lanes give
 * all ranks the same answer for all pieces. The piece of a late rank may then get the result of a
 * later round. */
static void route_reopen(struct piece *p)
{
    struct gp_tensor *t = p->tensor;
    bool is_committed = p->standing == PIECE_IDLE && p->committed >= t->round;
    /* the lane has only the result of a later round, and this rank fetches this later round for all
     * tensors (W22) */
    bool is_outrun = p->standing == PIECE_IDLE && !is_committed;
    if (t->without_result == 0 || p->standing == PIECE_ANNOUNCED || p->is_entering || is_outrun)
        return;
    if (is_committed) {
        p->committed = t->round - 1;
        t->without_commit++;
    }
    p->standing = PIECE_ANNOUNCED;
    t->without_result++;
}

static struct piece *route_find_piece(struct gp_tensor *t, uint32_t id)
{
    for_each_piece (p, t)
        if (p->id == id)
            return p;
    return NULL;
}

static bool is_known(const struct piece *p, const Gradpool__Wire__Piece *said)
{
    return p->epoch == said->epoch && p->link->lane == said->lane && !p->is_orphan &&
           p->link->state != LINK_CLOSED;
}

/* Returns the link that must close before the new owner gets a READY. A fence that exists already
 * is kept: its lane is the last one that has received a READY, and the owners after this lane never
 * got an address of this worker's memory. */
static struct link *route_fence(const struct piece *p, struct link *former, bool is_released)
{
    if (p->fence || is_released || former == p->link || !former->conn)
        return p->fence;
    return former;
}

/* Returns whether the former lane has released the piece. If the lane was lost instead, also in a
 * route that this worker has missed, `lost_epoch` is above the epoch that this worker knows
 * (L19). */
static bool route_is_released(const struct piece *p, const Gradpool__Wire__Piece *said)
{
    return p->epoch >= said->lost_epoch && p->epoch < said->epoch;
}

/* Sets the new link of the piece. route_settle() decides what happens to the old link. Afterwards
 * the new lane receives its READY. */
static void route_adopt(struct piece *p, const Gradpool__Wire__Piece *said)
{
    struct link *former = p->link, *link = link_get(p->tensor->job, said->lane);
    bool is_released = route_is_released(p, said);
    if (!link || is_known(p, said))
        return;
    /* The piece returns to a lane that has released the piece before, and this lane ends the
     * connection if no piece is left on it (L19). Exceptions: in a job whose ranks may change, the
     * route may have changed ranks only (L20), and a lane with shards of a table keeps the
     * connection. */
    link->is_left |= link == former && is_released && !p->tensor->knows_ranks &&
                     !job_tables_are_on(p->tensor->job, said->lane);
    piece_retract(p);
    if (p->tensor->job->is_elastic)
        route_reopen(p);
    /* the new word makes late messages of the former owner match no piece (W5) */
    piece_new_word(p);
    if (!is_released && former != link && !p->lost)
        p->lost = former;
    p->link = link;
    p->copy_told = 0;
    p->epoch = said->epoch;
    p->is_outside = route_is_idle(p) || (p->is_outside && tensor_is_outside(p->tensor));
    p->is_orphan = false;
    p->owes_standing = true;
    p->fence = route_fence(p, former, is_released);
}

/* Decides whether the old link is closed. A lane that counts as lost may still run, and write to
 * the memory of this worker. Before the successor gets a READY, the connection to the lost lane is
 * closed and the memory is no longer registered for this lane. Separate route changes name the
 * owners of the lane's other pieces. */
static void route_settle(struct piece *p)
{
    if (!p->owes_standing)
        return;
    if (p->fence)
        link_fence(p->fence);
    if (p->fence && !p->fence->conn)
        p->fence = NULL;
    link_announce(p->link, p);
}

void route_change(struct gp_job *job, const Gradpool__Wire__RouteChange *change)
{
    log_info("job '%s' rank %u: new routes for %zu tensors", job->name, job->rank,
             change->n_tensors);
    int error;
    for (size_t i = 0; i < change->n_tensors; i++) {
        const Gradpool__Wire__TensorRoute *route = change->tensors[i];
        struct gp_tensor *t = tensor_find_id(job, route->tensor);
        if (t && (error = route_take_ranks(t, route)) < 0)
            tensor_break(t, error, gp_last_error());
        for (size_t k = 0; t && k < route->n_pieces; k++) {
            struct piece *p = route_find_piece(t, route->pieces[k]->id);
            if (p)
                route_adopt(p, route->pieces[k]);
        }
    }
    for_each_piece_in (p, job)
        route_settle(p);
    for_each_link (l, job)
        l->is_left |= l->state == LINK_OPEN && link_pieces(l) == 0;
}
