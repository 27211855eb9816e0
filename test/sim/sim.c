/* Builds the simulated world, runs lanes and workers in random order, advances the clock, and frees
 * the world. All random numbers come from one seed. Must never read real time. README: S1 to S6. */
#include "test/sim/sim_types.h"

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* After this number of turns a world is considered stuck. */
#define TURNS_MAX 400000
#define STEP_NS_MOST 500

/* --- chance and failure --- */

/* Draws a random number by splitmix64. The network draws from its own sequence, so one more number
 * drawn here does not change the network's delays. */
uint64_t sim_draw(struct sim *sim, uint64_t below)
{
    uint64_t z = sim->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % below;
}

uint64_t sim_now_ns(const struct sim *sim) { return mem_network_now_ns(sim->networks[0]); }

bool sim_chance(struct sim *sim, uint32_t one_in) { return sim_draw(sim, one_in) == 0; }

void sim_note(struct sim *sim, uint64_t what)
{
    sim->result.transcript = (sim->result.transcript ^ what) * UINT64_C(0x100000001b3) + 1;
}

static int exit_code;

void sim_exit_on_failure(int code) { exit_code = code; }

void sim_fail(const struct sim *sim, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    print_error("GRADPOOL_TEST_SEED=%" PRIu64 " turn %" PRIu64 ": %s\n", sim->options.seed,
                sim->result.turns, text);
    if (exit_code)
        _exit(exit_code);
    fail_msg("%s", text);
    abort(); /* fail_msg() does not return, but the compiler does not know this */
}

struct sim_options sim_options_draw(uint64_t seed)
{
    struct sim chance = {.random = seed * 2 + 1};
    struct sim *s = &chance;
    struct sim_options o = {.seed = seed};
    o.lanes = 1 + (uint32_t)sim_draw(s, 3);
    o.jobs = 1 + (uint32_t)sim_draw(s, 3);
    o.workers = 1 + (uint32_t)sim_draw(s, sim_chance(s, 6) ? SIM_WORKERS_MAX : 4);
    o.pieces = 1 + (uint32_t)sim_draw(s, 6);
    o.rounds = 1 + (uint32_t)sim_draw(s, 10);
    o.elements_most = sim_chance(s, 8) ? 150000 : 600;
    o.reach = (enum sim_reach)sim_draw(s, 3);
    o.queue_depth = sim_chance(s, 2) ? 0 : 1 + (uint32_t)sim_draw(s, 8);
    o.delay_max_ns = sim_chance(s, 4) ? 0 : 1 + sim_draw(s, 20000);
    o.payload_bytes_max = sim_chance(s, 3) ? 0 : 64u << 10;
    o.repeats = sim_chance(s, 2);
    o.stops = (uint32_t)sim_draw(s, 3);
    o.lane_deaths = sim_chance(s, 3) ? 0 : (uint32_t)sim_draw(s, 3);
    o.moves = sim_chance(s, 2) ? 0 : (uint32_t)sim_draw(s, 30);
    o.worker_deaths = sim_chance(s, 3);
    o.cuts = sim_chance(s, 3) ? (uint32_t)(1 + sim_draw(s, 3)) : 0;
    o.laps = !o.lane_deaths && !o.moves && !o.cuts;
    o.leaves_early = !o.lane_deaths && !o.moves && !o.cuts && sim_chance(s, 2);
    o.handovers = sim_chance(s, 2) ? 0 : (uint32_t)sim_draw(s, 30);
    o.laps &= !o.handovers;
    o.kinds = sim_chance(s, 2) ? SIM_KINDS_PLAIN : SIM_KINDS_MIXED;
    return o;
}

/* --- building --- */

static uint32_t draw_count(struct sim *sim, uint32_t most)
{
    return sim->options.is_exact ? most : 1 + (uint32_t)sim_draw(sim, most);
}

static uint64_t draw_elements(struct sim *sim)
{
    if (sim->options.is_exact)
        return sim->options.elements_most;
    if (sim_chance(sim, 8))
        return 0;
    return 1 + sim_draw(sim, sim_chance(sim, 3) ? 8 : sim->options.elements_most);
}

static uint64_t lay_out(struct sim_piece *piece, uint64_t at, uint64_t offset[2], bool is_double)
{
    for (int k = 0; k < 1 + is_double; k++) {
        offset[k] = at;
        at += piece->elements * sizeof(float) + SIM_GUARD_BYTES;
    }
    return at;
}

/* Allocates a region. A mapped network needs mappable memory. Other networks use plain memory of
 * the exact size, where a sanitizer detects an access beyond the end. */
static void make_region(struct sim *sim, bool is_mapped, size_t bytes, struct region *ret_region)
{
    int r = 0;
    if (is_mapped)
        r = region_create(bytes, ret_region);
    else
        region_wrap(malloc(bytes), bytes, ret_region);
    sim_require(sim, r == 0 && ret_region->base, "no memory for a worker: %d", r);
}

static void make_worker(struct sim *sim, struct sim_job *job, uint32_t rank, size_t input_bytes,
                        size_t landing_bytes, size_t copies_bytes)
{
    struct sim_worker *w = &job->workers[rank];
    struct fabric_options options = {.payload_bytes_max = sim->options.payload_bytes_max};
    w->sim = sim;
    w->job = job;
    w->rank = rank;
    w->is_mapped =
        sim->options.reach == SIM_MIXED ? sim_chance(sim, 2) : sim->options.reach == SIM_MAPPED;
    make_region(sim, w->is_mapped, input_bytes, &w->regions[SIM_INPUTS]);
    make_region(sim, w->is_mapped, landing_bytes, &w->regions[SIM_LANDINGS]);
    make_region(sim, w->is_mapped, copies_bytes, &w->regions[SIM_COPIES]);
    check_prepare_memory(w, input_bytes, landing_bytes);
    int r = mem_fabric_open(sim->networks[w->is_mapped], &options, &w->fabric);
    sim_require(sim, r == 0, "no fabric: %d", r);
}

static void make_job(struct sim *sim, uint32_t index)
{
    struct sim_job *job = &sim->jobs[index];
    uint64_t inputs = 0, landings = SIM_GUARD_BYTES, copies = SIM_GUARD_BYTES;
    job->id = 100 + index;
    job->victim = SIM_NOWHERE;
    job->workers_count = draw_count(sim, sim->options.workers);
    job->pieces_count = draw_count(sim, sim->options.pieces);
    job->rounds = draw_count(sim, sim->options.rounds);
    job->is_double = sim_chance(sim, 2);
    job->is_inline = sim->options.payload_bytes_max && sim_chance(sim, 2);
    for (uint32_t i = 0; i < job->pieces_count; i++) {
        struct sim_piece *piece = &job->pieces[i];
        *piece = (struct sim_piece){.job = job, .id = i + 1, .elements = draw_elements(sim)};
        kind_draw(sim, piece);
        inputs = lay_out(piece, inputs, piece->input_offset, job->is_double);
        landings = lay_out(piece, landings, piece->landing_offset, job->is_double);
        copies = copy_lay_out(sim, piece, copies);
        for (int k = 0; k < 2; k++)
            piece->result[k] = calloc(piece->elements + 1, sizeof(float));
    }
    for (uint32_t rank = 0; rank < job->workers_count; rank++)
        make_worker(sim, job, rank, inputs, landings, copies);
    coordinator_place_job(sim, job);
}

static struct fabric *faulty_fabric(struct sim *sim)
{
    struct sim_job *job = &sim->jobs[0];
    if (sim->options.fault.is_worker)
        return job->workers[job->workers_count - 1].fabric;
    return sim->lanes[0].fabrics[sim->options.reach == SIM_MAPPED];
}

static void make_networks(struct sim *sim)
{
    for (int i = 0; i < 2; i++) {
        struct mem_network_options network = {.seed = sim->options.seed + (uint64_t)i,
                                              .delay_max_ns = sim->options.delay_max_ns,
                                              .is_mapped = i == SIM_MAPPED,
                                              .queue_depth = sim->options.queue_depth};
        int r = mem_network_create(&network, &sim->networks[i]);
        sim_require(sim, r == 0, "no network: %d", r);
    }
}

static struct sim *make(const struct sim_options *options)
{
    struct sim *sim = calloc(1, sizeof *sim);
    assert_non_null(sim);
    sim->options = *options;
    sim->random = options->seed;
    sim->stops_left = options->stops;
    sim->moves_left = options->moves;
    sim->handovers_left = options->handovers;
    sim->cuts_left = options->cuts;
    sim->lane_deaths_left = options->lane_deaths;
    sim->worker_deaths_left = options->worker_deaths;
    sim->next_accident_turn = sim_draw(sim, 60);
    make_networks(sim);
    memory_start();
    for (uint32_t i = 0; i < options->lanes; i++)
        coordinator_start_lane(sim);
    for (uint32_t i = 0; i < options->jobs; i++)
        make_job(sim, i);
    if (options->fault.post)
        mem_fabric_fail_post(faulty_fabric(sim), options->fault.post, options->fault.fault);
    sim->result.allocations = memory_allocations();
    memory_fail(options->allocation_fails);
    return sim;
}

/* --- turning --- */

struct actor {
    struct sim_lane *lane; /* NULL: the actor is a worker */
    struct sim_worker *worker;
};

static size_t list_actors(struct sim *sim, struct actor *actors)
{
    size_t count = 0;
    for (uint32_t i = 0; i < sim->lanes_count; i++) {
        if (sim->lanes[i].is_alive)
            actors[count++] = (struct actor){.lane = &sim->lanes[i]};
    }
    for (uint32_t i = 0; i < sim->options.jobs; i++) {
        for (uint32_t rank = 0; rank < sim->jobs[i].workers_count; rank++) {
            struct sim_worker *w = &sim->jobs[i].workers[rank];
            if (!w->is_killed && !w->stopped_until_ns)
                actors[count++] = (struct actor){.worker = w};
        }
    }
    return count;
}

static uint64_t lane_posts(const struct sim_lane *lane)
{
    return mem_fabric_counters(lane->fabrics[SIM_MESSAGES]).posts +
           mem_fabric_counters(lane->fabrics[SIM_MAPPED]).posts;
}

/* Returns whether the lane died at the post (number `post` of the run) at which the test kills
 * it. */
static bool has_died(struct sim *sim, const struct sim_lane *lane)
{
    const struct sim_fault *fault = &sim->options.fault;
    return fault->post && fault->fault == MEM_FAULT_KILL && lane == &sim->lanes[0] &&
           mem_fabric_counters(faulty_fabric(sim)).posts >= fault->post;
}

static bool lane_turn(struct sim *sim, struct sim_lane *lane)
{
    struct fabric_wait wait;
    uint64_t before = lane_posts(lane);
    bool has_more = lane_poll(lane->lane, sim_now_ns(sim));
    uint64_t after = lane_posts(lane);
    sim_note(sim, after);
    if (has_died(sim, lane)) {
        fate_bury(sim, lane);
        return true;
    }
    return has_more || after != before ||
           fabric_arm(lane->fabrics[SIM_MESSAGES], &wait) == -EAGAIN ||
           fabric_arm(lane->fabrics[SIM_MAPPED], &wait) == -EAGAIN;
}

/* Runs lanes and workers in random order, and skips some. Returns whether a lane or a worker may
 * still have work at the present time. */
static bool give_turns(struct sim *sim)
{
    struct actor actors[SIM_LANES_MAX + SIM_JOBS_MAX * SIM_WORKERS_MAX];
    size_t count = list_actors(sim, actors);
    bool did = false;
    for (size_t left = count; left > 0; left--) {
        size_t i = sim_draw(sim, left);
        struct actor actor = actors[i];
        actors[i] = actors[left - 1];
        if (sim_chance(sim, 4))
            did = true; /* a skipped lane or worker may have work */
        else if (actor.lane)
            did |= lane_turn(sim, actor.lane);
        else
            did |= worker_turn(actor.worker);
    }
    return did;
}

static uint64_t next_wake_ns(const struct sim *sim)
{
    uint64_t next_ns = UINT64_MAX;
    for (uint32_t i = 0; i < sim->options.jobs; i++) {
        for (uint32_t rank = 0; rank < sim->jobs[i].workers_count; rank++) {
            uint64_t until_ns = sim->jobs[i].workers[rank].stopped_until_ns;
            if (until_ns && until_ns < next_ns)
                next_ns = until_ns;
        }
    }
    return next_ns;
}

/* Returns the time of the next event: the arrival of the next packet, or the end of a worker's
 * stop. */
static uint64_t next_due_ns(const struct sim *sim)
{
    uint64_t due_ns = next_wake_ns(sim);
    for (int i = 0; i < 2; i++) {
        uint64_t next_ns = mem_network_next_ns(sim->networks[i]);
        if (next_ns < due_ns)
            due_ns = next_ns;
    }
    return due_ns;
}

static void pass_time(struct sim *sim, bool did)
{
    uint64_t now_ns = sim_now_ns(sim), next_ns = next_due_ns(sim);
    if (did || next_ns == UINT64_MAX || next_ns <= now_ns)
        next_ns = now_ns + 1 + sim_draw(sim, STEP_NS_MOST);
    for (int i = 0; i < 2; i++)
        mem_network_advance(sim->networks[i], next_ns);
}

static bool is_over(const struct sim *sim)
{
    for (uint32_t i = 0; i < sim->options.jobs; i++) {
        if (!sim->jobs[i].is_dropped)
            return false;
    }
    for (uint32_t i = 0; i < sim->lanes_count; i++) {
        if (sim->lanes[i].is_alive && memory_blocks(sim->lanes[i].arena) > 0)
            return false;
    }
    return true;
}

static void explain_stuck(const struct sim *sim)
{
    for (uint32_t i = 0; i < sim->options.jobs; i++) {
        const struct sim_job *job = &sim->jobs[i];
        for (uint32_t k = 0; k < job->pieces_count && !job->is_dropped; k++)
            explain_owner(sim, &job->pieces[k]);
        for (uint32_t rank = 0; rank < job->workers_count && !job->is_dropped; rank++) {
            for (uint32_t k = 0; k < job->pieces_count; k++) {
                const struct sim_view *v = &job->workers[rank].views[k];
                print_error("job %u rank %u piece %u (kind %d)%s: begun %" PRIu64
                            " (standing %d), committed %" PRIu64 " of %" PRIu64
                            ", lane %u epoch %u (next %d), link %d, fence %d\n",
                            job->id, rank, k + 1, (int)job->pieces[k].kind,
                            v->has_failed ? " failed" : "", v->begun,
                            (int)v->open[v->begun & 1].standing, v->committed, job->rounds, v->lane,
                            v->epoch, (int)v->next_lane, job->workers[rank].links[v->lane].state,
                            (int)v->fence);
            }
        }
    }
    sim_fail(sim, "the world stands still");
}

static void turn(struct sim *sim)
{
    bool did = fate_turn(sim);
    did |= coordinator_turn(sim);
    did |= give_turns(sim);
    check_world(sim);
    pass_time(sim, did);
    if (++sim->result.turns == TURNS_MAX)
        explain_stuck(sim);
}

/* --- taking down --- */

static void free_job(struct sim_job *job)
{
    for (uint32_t rank = 0; rank < job->workers_count; rank++) {
        struct sim_worker *w = &job->workers[rank];
        fabric_close(w->fabric);
        for (int id = 0; id < SIM_REGIONS; id++) {
            if (w->is_mapped)
                region_destroy(&w->regions[id]);
            else
                free(w->regions[id].base);
        }
    }
    for (uint32_t i = 0; i < job->pieces_count; i++) {
        free(job->pieces[i].result[0]);
        free(job->pieces[i].result[1]);
        kind_free(&job->pieces[i]);
    }
}

static void measure(struct sim *sim)
{
    sim->result.posts = mem_fabric_counters(faulty_fabric(sim)).posts;
    sim->result.allocations = memory_allocations() - sim->result.allocations;
    for (uint32_t i = 0; i < sim->lanes_count; i++) {
        struct lane_use use;
        lane_measure(sim->lanes[i].lane, &use, NULL, 0);
        sim->result.rounds += use.rounds;
        if (sim->lanes[i].is_alive)
            check_lane_is_empty(sim, &sim->lanes[i]);
    }
}

static void unmake(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->options.jobs; i++)
        free_job(&sim->jobs[i]);
    for (uint32_t i = 0; i < sim->lanes_count; i++) {
        fabric_close(sim->lanes[i].fabrics[SIM_MESSAGES]);
        fabric_close(sim->lanes[i].fabrics[SIM_MAPPED]);
        lane_destroy(sim->lanes[i].lane);
        arena_destroy(sim->lanes[i].arena);
    }
    mem_network_destroy(sim->networks[SIM_MESSAGES]);
    mem_network_destroy(sim->networks[SIM_MAPPED]);
    free(sim);
}

struct sim_result sim_run(const struct sim_options *options)
{
    struct sim *sim = make(options);
    while (!is_over(sim))
        turn(sim);
    measure(sim);
    struct sim_result result = sim->result;
    unmake(sim);
    return result;
}
