/* Moves pieces in use from lane to lane as a coordinator does: runs `migrator` and executes its
 * actions. Each answer follows its request after some turns. Losses of source or target, time-outs
 * and refusals by the store happen at random. */
#include "svc/lane/move/moved_state.h"
#include "svc/lane/move/release.h"
#include "test/sim/sim_types.h"

#include <errno.h>

#define STEP_TURNS_MOST 12
/* larger than the header of a state, and smaller than many states */
#define PART_BYTES 10000

static void feed(struct sim *sim, struct sim_piece *piece, enum migrator_event event);

static void wait_a_while(struct sim *sim, struct sim_move *move)
{
    move->next_turn = sim->result.turns + 1 + sim_draw(sim, STEP_TURNS_MOST);
}

static struct lane *lane_at(struct sim *sim, uint32_t number)
{
    return sim->lanes[number].is_alive ? sim->lanes[number].lane : NULL;
}

static void drop_from(struct sim *sim, const struct sim_piece *piece, uint32_t number)
{
    struct lane *lane = lane_at(sim, number);
    if (lane)
        lane_drop(lane, piece->job->id, &piece->id, 1);
}

/* Copies the state of a piece part by part from source to target, as a coordinator does. */
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

/* Installs the state in the target, which has had no message about the piece before. */
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

/* --- the actions of migrator --- */

static void release(struct sim *sim, struct sim_piece *piece)
{
    struct lane *source = lane_at(sim, piece->move.source);
    if (lane_release(source, piece->job->id, &piece->id, 1) < 0)
        feed(sim, piece, MIGRATOR_E_REFUSED); /* the lane refuses because its job has failed */
}

/* The target receives no message: workers contact the target only after they have received the new
 * route. */
static void activate(struct sim *sim, struct sim_piece *piece)
{
    piece->lane = piece->move.target;
    piece->epoch = piece->move.epoch;
    tell_route(piece, true);
    feed(sim, piece, MIGRATOR_E_ACTIVATED);
}

static void give_up(struct sim *sim, struct sim_piece *piece)
{
    uint32_t number = piece->move.source;
    struct lane *source = lane_at(sim, number);
    drop_from(sim, piece, piece->move.target);
    piece->move.state = MIGRATOR_C_IDLE;
    sim->result.undone++;
    if (!source)
        return;
    lane_thaw(source, piece->job->id, &piece->id, 1);
    check_stays(sim, piece, number);
}

static void finish(struct sim *sim, struct sim_piece *piece)
{
    drop_from(sim, piece, piece->move.source);
    piece->move.state = MIGRATOR_C_IDLE;
    sim->result.handovers++;
}

/* Assigns another lane to a piece of a dead lane: at once if the death is already detected, else
 * after its detection. */
static void recover(struct sim *sim, struct sim_piece *piece)
{
    bool is_aborted = piece->move.state == MIGRATOR_C_ABORTED;
    if (is_aborted)
        give_up(sim, piece);
    else
        finish(sim, piece);
    coordinator_recover(sim, piece);
}

static void carry_out(struct sim *sim, struct sim_piece *piece, enum migrator_action action)
{
    switch (action) {
    case MIGRATOR_A_SEND_PREPARE:
        place_on(sim, piece, piece->move.target, piece->move.epoch);
        break;
    case MIGRATOR_A_SEND_MOVE: release(sim, piece); break;
    case MIGRATOR_A_SEND_ACTIVATE: activate(sim, piece); break;
    case MIGRATOR_A_SEND_ABORT: give_up(sim, piece); break;
    case MIGRATOR_A_RECOVER: recover(sim, piece); break;
    case MIGRATOR_A_FINISH: finish(sim, piece); break;
    default: break; /* the store answers in a later turn */
    }
}

static void feed(struct sim *sim, struct sim_piece *piece, enum migrator_event event)
{
    enum migrator_state was = piece->move.state;
    struct migrator_transition next = migrator_step(was, event, false);
    sim_require(sim, next.action != MIGRATOR_A_REFUSE, "%s in %s", migrator_event_name(event),
                migrator_state_name(was));
    piece->move.state = next.state;
    carry_out(sim, piece, next.action);
}

/* --- the events of a move --- */

void move_begin(struct sim *sim, struct sim_piece *piece)
{
    uint32_t target = choose_lane(sim, piece->lane);
    if (target == SIM_NOWHERE)
        return;
    sim->handovers_left--;
#ifndef GRADPOOL_PLANT_EPOCH_NOT_RAISED
    piece->epochs++;
#endif
    piece->move =
        (struct sim_move){.source = piece->lane, .target = target, .epoch = piece->epochs};
    feed(sim, piece, MIGRATOR_E_START);
    wait_a_while(sim, &piece->move);
}

void move_hear_losses(struct sim *sim, struct sim_piece *piece)
{
    if (move_is_under_way(piece) && !sim->lanes[piece->move.source].is_alive)
        feed(sim, piece, MIGRATOR_E_SOURCE_LOST);
    if (move_is_under_way(piece) && !sim->lanes[piece->move.target].is_alive)
        feed(sim, piece, MIGRATOR_E_TARGET_LOST);
}

static void look_at_source(struct sim *sim, struct sim_piece *piece)
{
    struct lane *source = lane_at(sim, piece->move.source);
    if (lane_is_releasing(source, piece->job->id, &piece->id, 1) < 0)
        return feed(sim, piece, MIGRATOR_E_REFUSED);
    if (lane_rested(source, piece->job->id, &piece->id, 1) != 1)
        return;
    install(sim, piece);
    feed(sim, piece, MIGRATOR_E_INSTALLED);
}

static void step(struct sim *sim, struct sim_piece *piece)
{
    wait_a_while(sim, &piece->move);
    switch (piece->move.state) {
    case MIGRATOR_C_PREPARING: return feed(sim, piece, MIGRATOR_E_PREPARED);
    case MIGRATOR_C_MOVING: return look_at_source(sim, piece);
    case MIGRATOR_C_COMMITTING: return feed(sim, piece, MIGRATOR_E_ROUTE_WRITTEN);
    default: return feed(sim, piece, MIGRATOR_E_RELEASED);
    }
}

/* Makes a random step of the move fail. After the switch of the route no step may fail. */
static void go_wrong(struct sim *sim, struct sim_piece *piece)
{
    bool is_stored = piece->move.state == MIGRATOR_C_COMMITTING;
    feed(sim, piece, is_stored ? MIGRATOR_E_REFUSED : MIGRATOR_E_TIMEOUT);
}

bool move_turn(struct sim *sim, struct sim_piece *piece)
{
    const struct sim_move *move = &piece->move;
    if (!move_is_under_way(piece))
        return false;
    move_hear_losses(sim, piece);
    if (!move_is_under_way(piece) || sim->result.turns < move->next_turn)
        return true;
    if (migrator_owner(move->state) == MIGRATOR_SOURCE && sim_chance(sim, 12))
        go_wrong(sim, piece);
    else
        step(sim, piece);
    return true;
}
