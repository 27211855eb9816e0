/* Stores copies of the state of pieces with an update rule in the memory of each job's last rank
 * (W17), and sends the messages about these copies. Must never read a copy: if a copy is wrong, the
 * results of a lane that continues from the copy are wrong. */
#include "test/sim/sim_types.h"

#include <string.h>

static uint64_t state_bytes(const struct sim_piece *piece)
{
    return piece->elements * sizeof(float) * (1 + (uint64_t)update_moments(piece->rule));
}

bool copy_is_kept(const struct sim *sim, const struct sim_piece *piece)
{
    return sim->options.has_copies && piece->kind == SIM_UPDATE;
}

uint64_t copy_lay_out(const struct sim *sim, struct sim_piece *piece, uint64_t at)
{
    piece->copy_offset = at;
    return copy_is_kept(sim, piece) ? at + 2 * state_bytes(piece) : at;
}

/* Returns the number of updates since the parameters were last set. */
static uint64_t steps_after(const struct sim_piece *piece, uint64_t round)
{
    uint64_t steps = 0;
    while (round - steps > 1 && plan_of(piece, round - steps).operation == RECORD_UPDATE)
        steps++;
    return steps;
}

int copy_tell(struct sim_worker *w, const struct sim_piece *piece)
{
    struct sim_view *v = &w->views[piece->id - 1];
    if (v->told_copy || w->rank + 1 != w->job->workers_count || piece->elements == 0 ||
        !copy_is_kept(w->sim, piece))
        return 0;
    struct record_backup told = {
        .kind = RECORD_BACKUP,
        .piece = piece->id,
        .region = SIM_COPIES,
        .offset = {piece->copy_offset, piece->copy_offset + state_bytes(piece)},
        .since = 1};
    for (uint64_t round = v->begun; round > 0 && round + 3 > v->begun; round--)
        told.steps[round % 3] = steps_after(piece, round);
    int r = fabric_send(w->links[v->lane].conn, &told, sizeof told, NULL, 0);
    v->told_copy = r == 0;
    return r;
}
