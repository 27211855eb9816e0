/* Owns the memory of copies of lanes' states. One rank of a tensor stores the copy of a piece, so
 * the copy survives the loss of any number of lanes. This worker never reads the copy. README: L28;
 * svc/wire/README.md: W17. */
#include "client/lib/job/state_copy.h"

#include "client/lib/session/process.h"
#include "svc/base/system/shortage.h"

#include <string.h>

static bool copy_is_of(const struct gp_tensor *t, uint32_t rank)
{
    return t->knows_ranks ? ranks_have(t->ranks, rank) : terms_have_rank(&t->terms, rank);
}

/* Chooses the rank by the number of the piece, so that all ranks store about the same amount and
 * compute the same rank without a message. */
void copy_choose(struct piece *p)
{
    const struct gp_tensor *t = p->tensor;
    uint32_t left = t->members > 0 ? p->id % t->members : 0, rank = 0;
    for (; rank < t->job->workers; rank++) {
        if (copy_is_of(t, rank) && left-- == 0)
            break;
    }
    if (tensor_is_outside(t))
        p->copy_since = RECORD_ROUND_NONE; /* lanes write no state to the copy of an idle rank */
    p->keeps_copy =
        t->job->keeps_copies && t->terms.rule && p->elements > 0 && rank == t->job->rank;
}

static uint64_t copy_bytes(const struct piece *p)
{
    return p->elements * sizeof(float) * tensor_arrays(p->tensor);
}

static int copy_prepare_piece(struct piece *p)
{
    struct gp_tensor *t = p->tensor;
    if (!p->keeps_copy || p->copy)
        return 0;
    int error = slabs_alloc(&t->job->slabs, 2 * copy_bytes(p), &p->copy);
    p->copy_since = t->knows_ranks ? RECORD_ROUND_NONE : t->round + 1;
    char lack[SHORTAGE_BYTES];
    return error < 0
               ? client_error(
                     error,
                     "tensor '%s': this worker has no memory for a copy of the parameters: %s",
                     t->name, shortage_text(error, SHORTAGE_OTHER, lack, sizeof lack))
               : 0;
}

int copy_prepare(struct gp_tensor *t)
{
    for_each_piece (p, t) {
        int error = copy_prepare_piece(p);
        if (error < 0)
            return error;
    }
    return 0;
}

int copy_tell(struct piece *p, struct fabric_conn *conn, uint32_t opening)
{
    const struct gp_tensor *t = p->tensor;
    bool is_claim = p->copy_since != RECORD_ROUND_NONE;
    if (!p->copy || p->copy_told == opening || (is_claim && !t->knows_steps))
        return 0;
    struct slab_place place;
    slabs_find(&t->job->slabs, p->copy, 2 * copy_bytes(p), &place);
    struct record_backup told = {.kind = RECORD_BACKUP,
                                 .piece = p->id,
                                 .region = place.region,
                                 .note = p->slot,
                                 .offset = {place.offset, place.offset + copy_bytes(p)},
                                 .since = p->copy_since};
    memcpy(told.steps, t->steps, sizeof told.steps);
    int error = fabric_send(conn, &told, sizeof told, NULL, 0);
    if (error == 0)
        p->copy_told = opening;
    return error;
}

/* Stores the number of updates that a lane has sent for a round. A late worker has missed the
 * broadcast, does not know this number before, and counts its own updates from this round on. */
static void copy_learn_steps(struct gp_tensor *t, uint64_t round, uint64_t steps)
{
    bool is_known = t->knows_steps && t->entering == 0;
    if (is_known || (round > t->round && t->entering == 0))
        return;
    t->steps_round = round;
    t->steps[round % 3] = steps;
    for (uint64_t next = round + 1; next <= t->round; next++) {
        const struct push *push = next == t->round ? &t->open : &t->kept;
        t->steps[next % 3] = t->steps[(next + 2) % 3] + (push->operation == RECORD_UPDATE);
    }
    t->knows_steps = true;
}

/* Only two lanes may send the record: the owner of the piece, and the former owner, whose last
 * records are still valid. A record of another lane is stale. */
void copy_backed(struct gp_job *job, const struct link *link, const struct record_backed *told)
{
    struct piece *p = told->note < job->slots_count ? job->slots[told->note].piece : NULL;
    bool is_ours = p && p->id == told->piece && p->copy && (p->link == link || p->fence == link);
    /* This rank has become idle in the present stage, and the record is of the stage before. Lanes
     * have not written later rounds to this copy, so the record is stale. */
    bool is_idle = is_ours && !job->is_elastic && tensor_is_outside(p->tensor);
    if (!is_ours || is_idle) {
        job->stale++;
        return;
    }
    p->copy_since = told->round;
    copy_learn_steps(p->tensor, told->round, told->steps);
}

void copy_free(struct piece *p)
{
    if (p->copy)
        slabs_free(&p->tensor->job->slabs, p->copy);
}
