/* Simulates the coordinator. It places pieces, grants tickets and detects dead lanes after a delay.
 * The pieces of a dead lane get a new owner and the next epoch, and the workers are informed at
 * different times. Must never place a piece while another live lane still serves it (S3). */
#include "svc/lane/hear/leave.h"
#include "svc/lane/move/regroup.h"
#include "svc/reduce/reduce.h"
#include "test/sim/sim_types.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LANE_ID_FIRST 10
/* Within this number of turns each survivor must be informed that a worker died, unless the
 * survivor is stopped. */
#define DOOM_TURNS 4000

/* --- lanes --- */

static uint64_t incarnation_of(uint32_t number) { return UINT64_C(0xfeed0000) + number; }

void coordinator_start_lane(struct sim *sim)
{
    uint32_t number = sim->lanes_count++;
    struct sim_lane *lane = &sim->lanes[number];
    struct fabric_options options = {.payload_bytes_max = sim->options.payload_bytes_max};
    char name[32];
    sim_require(sim, number < SIM_LANES_MAX, "too many lanes");
    snprintf(name, sizeof name, "lane %u", number);
    int r = arena_create(NULL, 0, &lane->arena);
    sim_require(sim, r == 0, "no arena: %d", r);
    for (int i = 0; i < 2; i++) {
        r = mem_fabric_open(sim->networks[i], &options, &lane->fabrics[i]);
        sim_require(sim, r == 0, "no fabric: %d", r);
        r = fabric_listen(lane->fabrics[i], name, lane->address);
        sim_require(sim, r == 0, "cannot listen: %d", r);
    }
    struct lane_options lane_options = {.id = LANE_ID_FIRST + number,
                                        .incarnation = incarnation_of(number),
                                        .arena = lane->arena,
                                        .fabrics = {lane->fabrics[0], lane->fabrics[1]},
                                        .fabrics_count = 2};
    r = lane_create(&lane_options, &lane->lane);
    sim_require(sim, r == 0, "no lane: %d", r);
    lane->is_alive = true;
}

uint32_t choose_lane(struct sim *sim, uint32_t but)
{
    uint32_t first = (uint32_t)sim_draw(sim, sim->lanes_count);
    for (uint32_t i = 0; i < sim->lanes_count; i++) {
        uint32_t number = (first + i) % sim->lanes_count;
        if (sim->lanes[number].is_alive && number != but)
            return number;
    }
    return SIM_NOWHERE;
}

struct search {
    const struct sim_piece *piece;
    bool found;
};

static void look(void *context, const struct lane_held *held)
{
    struct search *search = context;
    bool is_it = held->job == search->piece->job->id && held->piece == search->piece->id;
    search->found |= is_it && !held->is_frozen;
}

bool sim_lane_serves(const struct sim_lane *lane, const struct sim_piece *piece)
{
    struct search search = {.piece = piece};
    lane_each_piece(lane->lane, look, &search);
    return search.found;
}

bool coordinator_grant(struct sim *sim, const struct sim_worker *w, uint32_t lane,
                       struct record_connect *ret_ticket)
{
    if (!sim->lanes[lane].is_alive)
        return false;
    *ret_ticket = (struct record_connect){.magic = RECORD_MAGIC,
                                          .job = w->job->id,
                                          .rank = w->rank,
                                          .lane = LANE_ID_FIRST + lane,
                                          .incarnation = incarnation_of(lane)};
    uint32_t token = ++sim->tokens;
    memcpy(ret_ticket->token, &token, sizeof token);
    return lane_grant(sim->lanes[lane].lane, ret_ticket) == 0;
}

/* --- placing --- */

static void ask_to_place(struct sim *sim, const struct sim_piece *piece, uint32_t lane,
                         uint32_t epoch, bool recovering)
{
    struct lane_piece spec = {.id = piece->id,
                              .task = piece->id / 3,
                              .dtype = REDUCE_F32,
                              .elements = piece->elements,
                              .tensor = "w",
                              .terms = kind_terms(piece)};
    int r = lane_place(sim->lanes[lane].lane, piece->job->id, "sim", piece->job->workers_count,
                       epoch, recovering, &spec, 1);
    sim_require(sim, r == 0, "cannot place: %d", r);
}

void place_on(struct sim *sim, const struct sim_piece *piece, uint32_t lane, uint32_t epoch)
{
    ask_to_place(sim, piece, lane, epoch, true);
}

static void place(struct sim *sim, struct sim_piece *piece, uint32_t lane, bool recovering)
{
    piece->lane = lane;
    piece->epoch = ++piece->epochs;
    piece->is_leaving = false;
    ask_to_place(sim, piece, lane, piece->epoch, recovering);
}

void coordinator_place_job(struct sim *sim, struct sim_job *job)
{
    for (uint32_t i = 0; i < job->pieces_count; i++) {
        struct sim_piece *piece = &job->pieces[i];
        place(sim, piece, choose_lane(sim, SIM_NOWHERE), false);
        for (uint32_t rank = 0; rank < job->workers_count; rank++) {
            struct sim_view *v = &job->workers[rank].views[i];
            v->lane = piece->lane;
            v->epoch = piece->epoch;
            v->next_lane = v->fence = SIM_NOWHERE;
        }
    }
}

/* A worker that has not adopted the former route yet connects directly to the new lane. If an
 * earlier lane has released the piece, `is_released` stays true for this worker. */
void tell_route(struct sim_piece *piece, bool is_released)
{
    for (uint32_t rank = 0; rank < piece->job->workers_count; rank++) {
        struct sim_view *v = &piece->job->workers[rank].views[piece->id - 1];
        bool was_released = v->next_lane != SIM_NOWHERE && v->is_released;
        v->is_released = is_released || was_released;
        v->next_lane = piece->lane;
        v->next_epoch = piece->epoch;
    }
}

static void place_again(struct sim *sim, struct sim_piece *piece, uint32_t lane)
{
    piece->state_died |= piece->kind != SIM_SUM && !copy_is_kept(sim, piece);
    place(sim, piece, lane, true);
    tell_route(piece, false);
}

/* --- between two turns --- */

static void give_another(struct sim *sim, struct sim_piece *piece)
{
    if (choose_lane(sim, SIM_NOWHERE) == SIM_NOWHERE)
        coordinator_start_lane(sim);
    place_again(sim, piece, choose_lane(sim, SIM_NOWHERE));
}

void coordinator_recover(struct sim *sim, struct sim_piece *piece)
{
    const struct sim_lane *lane = &sim->lanes[piece->lane];
    if (!lane->is_alive && !lane->rerouted_turn)
        give_another(sim, piece);
}

/* Gives the piece of a dead lane a new owner. Waits while the store is about to write the route. */
static void replace_owner(struct sim *sim, struct sim_piece *piece, uint32_t dead)
{
    move_hear_losses(sim, piece);
    if (piece->lane == dead && piece->move.state != MIGRATOR_C_COMMITTING)
        give_another(sim, piece);
}

static bool replace_dead(struct sim *sim, uint32_t number)
{
    struct sim_lane *lane = &sim->lanes[number];
    if (lane->is_alive || !lane->rerouted_turn)
        return false;
    if (sim->result.turns < lane->rerouted_turn)
        return true;
    if (sim_chance(sim, 3))
        coordinator_start_lane(sim);
    for (uint32_t i = 0; i < sim->options.jobs; i++) {
        struct sim_job *job = &sim->jobs[i];
        for (uint32_t k = 0; k < job->pieces_count && !job->is_dropped; k++)
            if (job->pieces[k].lane == number)
                replace_owner(sim, &job->pieces[k], number);
    }
    lane->rerouted_turn = 0;
    return true;
}

/* Finishes the move of a piece that its lane was ordered to drop. The lane serves the piece until
 * the open round ends. Then another lane gets the piece, or the same lane under another epoch. */
static bool finish_move(struct sim *sim, struct sim_piece *piece)
{
    if (!piece->is_leaving || !sim->lanes[piece->lane].is_alive)
        return false;
    uint32_t target = choose_lane(sim, sim_chance(sim, 3) ? SIM_NOWHERE : piece->lane);
    if (!sim_lane_serves(&sim->lanes[piece->lane], piece))
        place_again(sim, piece, target == SIM_NOWHERE ? piece->lane : target);
    return true;
}

bool job_is_finished(const struct sim_job *job)
{
    for (uint32_t rank = 0; rank < job->workers_count; rank++) {
        if (!worker_is_finished(&job->workers[rank]))
            return false;
    }
    return true;
}

/* Returns whether all survivors were informed of the failure. A survivor is informed only by a lane
 * that is connected to this survivor and was connected to the victim. A worker that has lost such a
 * lane may never be informed. */
static bool doom_is_told(const struct sim_job *job)
{
    for (uint32_t rank = 0; rank < job->workers_count; rank++) {
        const struct sim_worker *w = &job->workers[rank];
        if (!w->is_killed && !w->has_error && !w->has_left)
            return false;
    }
    return true;
}

static bool somebody_is_stopped(const struct sim_job *job)
{
    for (uint32_t rank = 0; rank < job->workers_count; rank++) {
        if (job->workers[rank].stopped_until_ns && !job->workers[rank].is_killed)
            return true;
    }
    return false;
}

static void note_failure(void *context, uint32_t job, int code, const char *text)
{
    struct sim_job *failed = context;
    (void)code;
    (void)text;
    failed->is_reported |= job == failed->id;
}

static void note_lost(void *context, const struct lane_lost *lost)
{
    struct sim_job *of = context;
    if (lost->job == of->id)
        of->lost_ranks |= UINT64_C(1) << lost->rank;
}

/* A rank without a connection has left, is dead, or will reconnect (K6 of svc/coordinator). */
static void judge_lost(struct sim *sim, struct sim_job *job, struct lane *lane)
{
    bool is_dead = false;
    job->lost_ranks = 0;
    lane_each_lost(lane, note_lost, job);
    for (uint32_t rank = 0; rank < job->workers_count; rank++) {
        const struct sim_worker *w = &job->workers[rank];
        uint64_t left[RECORD_MISSING_WORDS] = {UINT64_C(1) << rank};
        bool is_lost = job->lost_ranks >> rank & 1;
        if (is_lost && w->has_left)
            lane_leave(lane, job->id, left);
        is_dead |= is_lost && w->is_killed;
    }
    sim_require(sim, !is_dead || job->is_doomed, "job %u: nobody was killed", job->id);
    for (uint32_t rank = 0; rank < job->workers_count; rank++)
        job->workers[rank].has_error |= is_dead;
}

/* A lane informs its connected workers. The coordinator informs the other workers. */
static void pass_failure_on(struct sim *sim, struct sim_job *job)
{
    for (uint32_t i = 0; i < sim->lanes_count; i++) {
        job->is_reported = false;
        if (sim->lanes[i].is_alive)
            lane_each_failure(sim->lanes[i].lane, note_failure, job);
        for (uint32_t rank = 0; rank < job->workers_count && job->is_reported; rank++)
            job->workers[rank].has_error |= !job->workers[rank].links[i].conn;
    }
}

static void drop_job(struct sim *sim, struct sim_job *job)
{
    job->is_dropped = true;
    for (uint32_t k = 0; k < job->pieces_count; k++)
        job->pieces[k].move.state = MIGRATOR_C_IDLE;
    for (uint32_t i = 0; i < sim->lanes_count; i++) {
        if (sim->lanes[i].is_alive)
            lane_drop(sim->lanes[i].lane, job->id, NULL, 0);
    }
}

static bool end_job(struct sim *sim, struct sim_job *job)
{
    if (job->is_dropped)
        return false;
    for (uint32_t i = 0; i < sim->lanes_count; i++)
        if (sim->lanes[i].is_alive)
            judge_lost(sim, job, sim->lanes[i].lane);
    if (job->is_doomed)
        pass_failure_on(sim, job);
    bool is_over = job->is_doomed && doom_is_told(job);
    if (somebody_is_stopped(job))
        job->doomed_turn = sim->result.turns;
    if (job->is_doomed && !is_over && sim->result.turns > job->doomed_turn + DOOM_TURNS) {
        sim_require(sim, job->lost_lane || job_is_finished(job),
                    "job %u: not everybody heard that rank %u is gone", job->id, job->victim);
        is_over = true;
    }
    if (!is_over && (job->is_doomed || !job_is_finished(job)))
        return job->is_doomed; /* the failure may still follow */
    sim->result.jobs_failed += job->is_doomed;
    sim->result.jobs_done += !job->is_doomed;
    drop_job(sim, job);
    return true;
}

bool coordinator_turn(struct sim *sim)
{
    bool did = false;
    for (uint32_t i = 0; i < sim->lanes_count; i++)
        did |= replace_dead(sim, i);
    for (uint32_t i = 0; i < sim->options.jobs; i++) {
        struct sim_job *job = &sim->jobs[i];
        for (uint32_t k = 0; k < job->pieces_count && !job->is_dropped; k++) {
            did |= finish_move(sim, &job->pieces[k]);
            did |= move_turn(sim, &job->pieces[k]);
        }
        did |= end_job(sim, job);
    }
    return did;
}
