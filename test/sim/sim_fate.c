/* Stops and kills workers, kills lanes, and orders moves of pieces, at random times. Must never
 * handle the consequences: this is the task of lanes, workers and coordinator. */
#include "test/sim/sim_types.h"

#include <string.h>

/* maximum number of turns between two random faults */
#define PEACE_TURNS 40
#define STOP_NS_MOST UINT64_C(2000000)
/* Maximum number of turns until a coordinator detects that a lane is dead. */
#define NOTICE_TURNS_MOST 30

void fate_doom(struct sim *sim, struct sim_job *job, uint32_t victim)
{
    if (job->is_doomed)
        return;
    job->is_doomed = true;
    job->victim = victim;
    job->doomed_turn = sim->result.turns;
}

static struct sim_job *random_job(struct sim *sim)
{
    struct sim_job *job = &sim->jobs[sim_draw(sim, sim->options.jobs)];
    return job->is_doomed || job->is_dropped ? NULL : job;
}

static struct sim_worker *random_worker(struct sim *sim)
{
    struct sim_job *job = random_job(sim);
    if (!job)
        return NULL;
    struct sim_worker *w = &job->workers[sim_draw(sim, job->workers_count)];
    return w->is_killed || w->has_left ? NULL : w;
}

static void stop_worker(struct sim *sim)
{
    struct sim_worker *w = random_worker(sim);
    if (!w)
        return;
    sim->stops_left--;
    w->stopped_until_ns = sim_now_ns(sim) + 1 + sim_draw(sim, STOP_NS_MOST);
    mem_fabric_stop(w->fabric, true);
}

/* Returns whether all workers are connected to the lanes of all pieces. Each lane of a victim can
 * then inform all survivors. */
static bool is_everywhere(const struct sim_job *job)
{
    for (uint32_t rank = 0; rank < job->workers_count; rank++) {
        const struct sim_worker *w = &job->workers[rank];
        for (uint32_t i = 0; i < job->pieces_count; i++) {
            if (w->links[w->views[i].lane].state != SIM_LINK_OPEN)
                return false;
        }
    }
    return true;
}

/* Marks open rounds that need only some ranks as failing. Such rounds fail when a connection
 * ends. */
static void spoil_open_kinds(struct sim_job *job)
{
    for (uint32_t i = 0; i < job->pieces_count; i++)
        job->pieces[i].state_died |= kind_is_open(&job->pieces[i]);
}

static void kill_worker(struct sim *sim)
{
    struct sim_worker *w = random_worker(sim);
    if (!w || w->job->workers_count == 1 || !is_everywhere(w->job))
        return;
    sim->worker_deaths_left--;
    sim->result.deaths++;
    mem_fabric_kill(w->fabric);
    w->is_killed = true;
    spoil_open_kinds(w->job);
    fate_doom(sim, w->job, w->rank);
}

/* Marks the jobs that were connected to the lane, because they may have missed its last
 * messages. */
static void mark_lost(struct sim *sim, uint32_t number)
{
    for (uint32_t i = 0; i < sim->options.jobs; i++) {
        struct sim_job *job = &sim->jobs[i];
        for (uint32_t rank = 0; rank < job->workers_count; rank++)
            job->lost_lane |= job->workers[rank].links[number].state != SIM_LINK_NONE;
    }
}

static void kill_lane(struct sim *sim)
{
    uint32_t number = (uint32_t)sim_draw(sim, sim->lanes_count);
    struct sim_lane *lane = &sim->lanes[number];
    if (!lane->is_alive || sim->lanes_count == SIM_LANES_MAX)
        return;
    sim->lane_deaths_left--;
    fate_bury(sim, lane);
}

void fate_bury(struct sim *sim, struct sim_lane *lane)
{
    sim->result.deaths++;
    mem_fabric_kill(lane->fabrics[SIM_MESSAGES]);
    mem_fabric_kill(lane->fabrics[SIM_MAPPED]);
    mark_lost(sim, (uint32_t)(lane - sim->lanes));
    lane->is_alive = false;
    lane->rerouted_turn = sim->result.turns + 1 + sim_draw(sim, NOTICE_TURNS_MOST);
}

static void move_piece(struct sim *sim)
{
    struct sim_job *job = random_job(sim);
    if (!job)
        return;
    struct sim_piece *piece = &job->pieces[sim_draw(sim, job->pieces_count)];
    bool is_moving = piece->is_leaving || move_is_under_way(piece);
    if (is_moving || !sim->lanes[piece->lane].is_alive || kind_has_state(piece))
        return;
    piece->is_leaving = true;
    sim->moves_left--;
    lane_drop(sim->lanes[piece->lane].lane, job->id, &piece->id, 1);
}

static void hand_over(struct sim *sim)
{
    struct sim_job *job = random_job(sim);
    if (!job)
        return;
    struct sim_piece *piece = &job->pieces[sim_draw(sim, job->pieces_count)];
    bool is_moving = piece->is_leaving || move_is_under_way(piece);
    if (!is_moving && sim->lanes[piece->lane].is_alive)
        move_begin(sim, piece);
}

static void cut_worker(struct sim *sim)
{
    struct sim_worker *w = random_worker(sim);
    if (!w)
        return;
    sim->cuts_left--;
    spoil_open_kinds(w->job);
    mem_fabric_fail_post(w->fabric, 1 + sim_draw(sim, 6), MEM_FAULT_RESET);
}

static void wake_workers(struct sim *sim, bool *did)
{
    for (uint32_t i = 0; i < sim->options.jobs; i++) {
        for (uint32_t rank = 0; rank < sim->jobs[i].workers_count; rank++) {
            struct sim_worker *w = &sim->jobs[i].workers[rank];
            if (!w->stopped_until_ns || w->stopped_until_ns > sim_now_ns(sim))
                continue;
            w->stopped_until_ns = 0;
            mem_fabric_stop(w->fabric, false);
            *did = true;
        }
    }
}

static void befall(struct sim *sim)
{
    switch (sim_draw(sim, 6)) {
    case 0:
        if (sim->stops_left > 0)
            stop_worker(sim);
        break;
    case 1:
        if (sim->cuts_left > 0)
            cut_worker(sim);
        break;
    case 2:
        if (sim->lane_deaths_left > 0)
            kill_lane(sim);
        break;
    case 3:
        if (sim->worker_deaths_left > 0)
            kill_worker(sim);
        break;
    default:
        if (sim->handovers_left > 0 && (sim->moves_left == 0 || sim_chance(sim, 2)))
            hand_over(sim);
        else if (sim->moves_left > 0)
            move_piece(sim);
    }
}

bool fate_turn(struct sim *sim)
{
    bool did = false;
    wake_workers(sim, &did);
    if (sim->result.turns < sim->next_accident_turn)
        return did;
    sim->next_accident_turn = sim->result.turns + 1 + sim_draw(sim, PEACE_TURNS);
    befall(sim);
    return did;
}
