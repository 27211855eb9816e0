/* Hands pieces from lane to lane while they are in use, as a coordinator does: the target prepares,
 * the source lets go, rounds and state go along, the routes are written, the source drops. Each
 * step comes some turns after the one before; whoever dies meanwhile undoes it, and so does chance.
 */
#include "test/sim/sim_types.h"

#include "svc/aggregator/release.h"

#include <errno.h>

#define STEP_TURNS_MOST 12
/* More than a head, less than many a state. */
#define PART_BYTES 10000

static void wait_a_while(struct sim *sim, struct sim_move *move)
{
    move->next_turn = sim->result.turns + 1 + sim_draw(sim, STEP_TURNS_MOST);
}

static struct lane *lane_at(struct sim *sim, uint32_t number)
{
    return sim->lanes[number].is_alive ? sim->lanes[number].lane : NULL;
}

void move_begin(struct sim *sim, struct sim_piece *piece)
{
    uint32_t target = choose_lane(sim, piece->lane);
    if (target == SIM_NOWHERE)
        return;
    sim->handovers_left--;
#ifndef GRADPOOL_PLANT_EPOCH_NOT_RAISED
    piece->epochs++;
#endif
    piece->move = (struct sim_move){
        .state = SIM_PREPARED, .source = piece->lane, .target = target, .epoch = piece->epochs};
    place_on(sim, piece, target, piece->move.epoch);
    wait_a_while(sim, &piece->move);
}

static void drop_from(struct sim *sim, const struct sim_piece *piece, uint32_t number)
{
    struct lane *lane = lane_at(sim, number);
    if (lane)
        lane_drop(lane, piece->job->id, &piece->id, 1);
}

/* Before the routes are written both sides forget it; afterwards only the source does. */
void move_end(struct sim *sim, struct sim_piece *piece)
{
    struct sim_move *move = &piece->move;
    struct lane *source = lane_at(sim, move->source);
    if (move->state == SIM_STAYS)
        return;
    bool is_done = move->state == SIM_COMMITTED;
    sim->result.handovers += is_done;
    sim->result.undone += !is_done;
    drop_from(sim, piece, is_done ? move->source : move->target);
    move->state = SIM_STAYS;
    if (is_done || !source)
        return;
    lane_thaw(source, piece->job->id, &piece->id, 1);
    check_stays(sim, piece, move->source);
}

/* Part by part, as through a coordinator. */
static int carry(struct lane *source, struct lane *target, const struct sim_piece *piece,
                 uint64_t bytes)
{
    static char part[PART_BYTES];
    uint32_t job = piece->job->id;
    int r = 0;
    for (uint64_t offset = 0; r == 0 && offset < bytes;) {
        int64_t count = lane_state_read(source, job, piece->id, offset, part, sizeof part);
        if (count <= 0)
            return -EIO;
        r = lane_state_put(target, job, piece->id, offset, part, (size_t)count);
        offset += (uint64_t)count;
    }
    return r;
}

/* Nobody has said anything to the target, so it takes what it is told. */
static void install(struct sim *sim, struct sim_piece *piece)
{
    struct lane *source = lane_at(sim, piece->move.source);
    struct lane *target = lane_at(sim, piece->move.target);
    struct lane_standing standing;
    int r = lane_standing(source, piece->job->id, piece->id, &standing);
    sim_require(sim, r == 0, "no standing: %d", r);
    r = carry(source, target, piece, standing.state_bytes);
    if (r == 0)
        r = lane_install(target, piece->job->id, &piece->id, &standing.round, 1);
    sim_require(sim, r == 0, "job %u piece %u: not installed: %d", piece->job->id, piece->id, r);
}

static void commit(struct sim *sim, struct sim_piece *piece)
{
    piece->lane = piece->move.target;
    piece->epoch = piece->move.epoch;
    piece->move.state = SIM_COMMITTED;
    tell_route(piece, true);
}

static void step(struct sim *sim, struct sim_piece *piece)
{
    struct sim_move *move = &piece->move;
    struct lane *source = lane_at(sim, move->source);
    wait_a_while(sim, move);
    switch (move->state) {
    case SIM_PREPARED:
        if (lane_release(source, piece->job->id, &piece->id, 1) == 0)
            move->state = SIM_RELEASING;
        else
            move_end(sim, piece); /* its job has failed there */
        break;
    case SIM_RELEASING:
        if (lane_is_releasing(source, piece->job->id, &piece->id, 1) < 0) {
            move_end(sim, piece);
        } else if (lane_rested(source, piece->job->id, &piece->id, 1) == 1) {
            install(sim, piece);
            move->state = SIM_INSTALLED;
        }
        break;
    case SIM_INSTALLED: commit(sim, piece); break;
    default: move_end(sim, piece);
    }
}

static bool is_broken(const struct sim *sim, const struct sim_move *move)
{
    bool has_target = sim->lanes[move->target].is_alive;
    return move->state != SIM_COMMITTED && !(has_target && sim->lanes[move->source].is_alive);
}

bool move_turn(struct sim *sim, struct sim_piece *piece)
{
    struct sim_move *move = &piece->move;
    if (move->state == SIM_STAYS)
        return false;
    if (is_broken(sim, move))
        move_end(sim, piece);
    else if (sim->result.turns < move->next_turn)
        return true;
    else if (move->state != SIM_COMMITTED && sim_chance(sim, 12))
        move_end(sim, piece);
    else
        step(sim, piece);
    return true;
}
