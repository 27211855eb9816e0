/* Hands pieces from lane to lane while they are in use, as a coordinator does: the target prepares,
 * the source lets go, rounds and state go along, the routes are written, the source drops. Each
 * step comes some turns after the one before; whoever dies meanwhile undoes it, and so does chance.
 */
#include "test/sim/sim_types.h"

#include "svc/aggregator/release.h"

#include <inttypes.h>

#define STEP_TURNS_MOST 12

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
    piece->move = (struct sim_move){
        .state = SIM_PREPARED, .source = piece->lane, .target = target, .epoch = ++piece->epochs};
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
    if (!is_done && source)
        lane_thaw(source, piece->job->id, &piece->id, 1);
}

/* Nobody has said anything to the target, so it takes what it is told. */
static void install(struct sim *sim, struct sim_piece *piece)
{
    static char state[LANE_STATE_HEAD_BYTES];
    struct lane *source = lane_at(sim, piece->move.source);
    struct lane *target = lane_at(sim, piece->move.target);
    struct lane_standing standing;
    int r = lane_standing(source, piece->job->id, piece->id, &standing);
    sim_require(sim, r == 0 && standing.state_bytes <= sizeof state, "no standing: %d", r);
    int64_t bytes =
        lane_state_read(source, piece->job->id, piece->id, 0, state, standing.state_bytes);
    sim_require(sim, bytes == (int64_t)standing.state_bytes, "no state: %" PRId64, bytes);
    if (bytes > 0)
        r = lane_state_put(target, piece->job->id, piece->id, 0, state, (size_t)bytes);
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
