/* Where a lane keeps a copy of what it has of a piece with an update rule: in the memory of one of
 * the piece's ranks, so that it outlives the lane, whichever others die with it. Owns that memory;
 * never looks at it. README: L28; svc/wire/README.md: W17. */
#include "client/state_copy.h"

#include <string.h>

/* Pieces take turns, so that each rank has about as much. */
void copy_choose(struct piece *p)
{
    const struct gp_tensor *t = p->tensor;
    uint32_t left = t->members > 0 ? p->id % t->members : 0, rank = 0;
    for (; rank < t->job->workers; rank++) {
        if (terms_have_rank(&t->terms, rank) && left-- == 0)
            break;
    }
    p->keeps_copy = t->job->is_durable && t->terms.rule && p->elements > 0 && rank == t->job->rank;
}

static uint64_t state_bytes(const struct piece *p)
{
    return p->elements * sizeof(float) * (1 + (uint64_t)update_moments(p->tensor->terms.rule));
}

static int prepare_piece(struct piece *p)
{
    struct gp_tensor *t = p->tensor;
    if (!p->keeps_copy || p->copy)
        return 0;
    int r = slabs_alloc(&t->job->slabs, 2 * state_bytes(p), &p->copy);
    p->copy_since = t->round + 1;
    return r < 0 ? client_error(r, "tensor '%s': no room for a copy of its parameters: %s", t->name,
                                err_text(r))
                 : 0;
}

int copy_prepare(struct gp_tensor *t)
{
    int r = 0;
    for (uint32_t i = 0; i < t->pieces_count && r == 0; i++)
        r = prepare_piece(&t->pieces[i]);
    return r;
}

int copy_tell(struct link *l, struct piece *p)
{
    const struct gp_tensor *t = p->tensor;
    if (!p->copy || p->copy_told == l->openings || !t->knows_steps)
        return 0;
    struct place place;
    slabs_find(&t->job->slabs, p->copy, 2 * state_bytes(p), &place);
    struct record_backup told = {.kind = RECORD_BACKUP,
                                 .piece = p->id,
                                 .region = place.region,
                                 .offset = {place.offset, place.offset + state_bytes(p)},
                                 .since = p->copy_since};
    memcpy(told.steps, t->steps, sizeof told.steps);
    int r = fabric_send(l->conn, &told, sizeof told, NULL, 0);
    if (r == 0)
        p->copy_told = l->openings;
    return r;
}

void copy_free(struct piece *p)
{
    if (p->copy)
        slabs_free(&p->tensor->job->slabs, p->copy);
}
