/* Checks results and commits against sums computed here in rank order. Uses no code of svc/reduce
 * except the formulas of update rules. Also fills the workers' memory. README: S1 to S9. */
#include "test/sim/sim_types.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 0xee
#define GARBAGE 0xdb
/* Maximum memory of a job's window and inbox (svc/lane/worker/window.c, inbox.c), rounded up to
 * pages. */
#define WINDOW_BYTES_MOST ((9u << 20) + (256u << 10))
#define JOB_BYTES_MOST (32u << 10) /* memory of a job and its transfers */
/* size of a rank's slot for answers, rounded up like sizes in the arena */
#define ANSWER_BYTES_MOST (320u << 10)

static uint32_t mix(uint64_t x)
{
    x *= UINT64_C(0x9e3779b97f4a7c15);
    x ^= x >> 29;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    return (uint32_t)(x >> 32);
}

static uint32_t stream_of(const struct sim_piece *piece, uint64_t round, uint32_t rank)
{
    uint64_t who = (uint64_t)piece->job->id << 24 ^ (uint64_t)piece->id << 12 ^ rank;
    return mix(who * UINT64_C(1000003) + round);
}

/* Returns an element of a gradient. A lost or doubled element changes the sum. */
static float value(uint32_t stream, uint64_t element)
{
    uint32_t x = stream ^ (uint32_t)element * 2654435761u;
    x ^= x >> 15;
    x *= 0x2c1b3c6du;
    return (float)(x >> 8) * 0x1p-23f - 1.0f;
}

/* --- the plan of a round --- */

struct sim_plan plan_of(const struct sim_piece *piece, uint64_t round)
{
    uint32_t chance = stream_of(piece, round, 4095);
    struct sim_plan plan = {.operation = RECORD_SUM};
    bool sets = piece->kind == SIM_UPDATE && (round == 1 || chance % 16 == 3);
    if (piece->kind == SIM_UPDATE && !sets)
        plan.operation = RECORD_UPDATE;
    else if (sets)
        plan = (struct sim_plan){RECORD_BROADCAST, chance / 16 % piece->job->workers_count};
    else if (piece->kind == SIM_FIRST && chance % 4 == 1)
        plan.operation = RECORD_MEAN;
    else if (piece->kind != SIM_SUM)
        return plan;
    else if (piece->elements == 0 && chance % 2 == 0)
        plan.operation = RECORD_BARRIER;
    else if (chance % 8 == 1)
        plan.operation = RECORD_MEAN;
    else if (chance % 8 == 3)
        plan = (struct sim_plan){RECORD_BROADCAST, chance / 8 % piece->job->workers_count};
    return plan;
}

bool plan_has_input(struct sim_plan plan, uint32_t rank)
{
    if (plan.operation == RECORD_BROADCAST)
        return plan.root == rank;
    return plan.operation != RECORD_BARRIER;
}

/* Returns false for the root of a broadcast, which receives no result. */
bool plan_has_output(struct sim_plan plan, uint32_t rank)
{
    if (plan.operation == RECORD_BROADCAST)
        return plan.root != rank;
    return plan.operation != RECORD_BARRIER;
}

float gradient_of(const struct sim_piece *piece, uint64_t round, uint32_t rank, uint64_t element)
{
    return kind_is_loose(piece) ? kind_contribution(piece, round, rank, element)
                                : value(stream_of(piece, round, rank), element);
}

static void add_rank(float *sum, const struct sim_piece *piece, uint64_t round, uint32_t rank,
                     bool is_first)
{
    uint32_t stream = stream_of(piece, round, rank);
    for (uint64_t e = 0; e < piece->elements; e++)
        sum[e] = is_first ? value(stream, e) : sum[e] + value(stream, e);
}

static bool divides(uint8_t operation)
{
    return operation == RECORD_MEAN || operation == RECORD_UPDATE;
}

static float *reduce(struct sim_piece *piece, uint64_t round)
{
    struct sim_plan plan = plan_of(piece, round);
    uint32_t workers = piece->job->workers_count;
    float *sum = piece->result[round & 1];
    if (plan.operation == RECORD_BROADCAST)
        add_rank(sum, piece, round, plan.root, true);
    for (uint32_t rank = 0; rank < workers && plan.operation != RECORD_BROADCAST; rank++)
        add_rank(sum, piece, round, rank, rank == 0);
    for (uint64_t e = 0; e < piece->elements && divides(plan.operation); e++)
        sum[e] /= (float)workers;
    piece->result_round[round & 1] = round;
    return sum;
}

/* Returns the expected result of a round. With an update rule the result depends on all earlier
 * rounds. */
static const float *expected(struct sim_piece *piece, uint64_t round)
{
    uint64_t next = piece->kind == SIM_UPDATE ? piece->model_round + 1 : round;
    for (; next <= round && piece->result_round[round & 1] != round; next++) {
        float *result = reduce(piece, next);
        if (piece->kind == SIM_UPDATE)
            kind_update(piece, next, plan_of(piece, next).operation == RECORD_UPDATE, result);
    }
    return piece->result[round & 1];
}

/* --- workers' memory --- */

static size_t bytes_of(const struct sim_piece *piece) { return piece->elements * sizeof(float); }

static uint32_t buffer_of(const struct sim_piece *piece, uint64_t round)
{
    return piece->job->is_double ? round & 1 : 0;
}

void *input_at(const struct sim_worker *w, const struct sim_piece *piece, uint64_t round)
{
    return (char *)w->regions[SIM_INPUTS].base + piece->input_offset[buffer_of(piece, round)];
}

void *landing_at(const struct sim_worker *w, const struct sim_piece *piece, uint64_t round)
{
    return (char *)w->regions[SIM_LANDINGS].base + piece->landing_offset[buffer_of(piece, round)];
}

void check_prepare_memory(struct sim_worker *w, size_t input_bytes, size_t landing_bytes)
{
    memset(w->regions[SIM_INPUTS].base, GUARD, input_bytes);
    memset(w->regions[SIM_LANDINGS].base, GUARD, landing_bytes);
}

void check_begin(struct sim_worker *w, struct sim_piece *piece, uint64_t round)
{
    float *input = input_at(w, piece, round);
    for (uint64_t e = 0; e < piece->elements; e++)
        input[e] = gradient_of(piece, round, w->rank, e);
    kind_begin(w, piece);
    memset(landing_at(w, piece, round), GARBAGE, bytes_of(piece));
}

static void fail_element(const struct sim_worker *w, const struct sim_piece *piece, uint64_t round,
                         const float *got, const float *want)
{
    uint64_t e = 0;
    while (memcmp(&got[e], &want[e], sizeof *got) == 0)
        e++;
    sim_fail(w->sim,
             "job %u rank %u piece %u round %" PRIu64 " element %" PRIu64 " is %.9g, not %.9g",
             w->job->id, w->rank, piece->id, round, e, got[e], want[e]);
}

static bool holds_result(const struct sim_worker *w, struct sim_piece *piece, uint64_t round)
{
    if (!plan_has_output(plan_of(piece, round), w->rank) || piece->elements == 0)
        return true;
    if (kind_is_open(piece))
        return kind_result_round(w, piece, round) == round;
    return memcmp(landing_at(w, piece, round), expected(piece, round), bytes_of(piece)) == 0;
}

static void check_input(const struct sim_worker *w, const struct sim_piece *piece, uint64_t round)
{
    const float *input = input_at(w, piece, round);
    for (uint64_t e = 0; e < piece->elements; e++)
        sim_require(w->sim, input[e] == gradient_of(piece, round, w->rank, e),
                    "job %u rank %u piece %u round %" PRIu64 ": the input was written to",
                    w->job->id, w->rank, piece->id, round);
}

static void check_guard(const struct sim_worker *w, const struct sim_piece *piece, const char *area)
{
    const unsigned char *guard = (const unsigned char *)area + bytes_of(piece);
    for (int i = 0; i < SIM_GUARD_BYTES; i++)
        sim_require(w->sim, guard[i] == GUARD, "job %u rank %u piece %u: written past its end",
                    w->job->id, w->rank, piece->id);
}

static uint64_t check_open(const struct sim_worker *w, struct sim_piece *piece, uint64_t round)
{
    uint64_t of = kind_result_round(w, piece, round);
    const float *got = landing_at(w, piece, round);
    sim_require(w->sim, of > 0,
                "job %u rank %u piece %u (kind %d) round %" PRIu64
                ": the result is that of no ranks: %.9g ...",
                w->job->id, w->rank, piece->id, (int)piece->kind, round, got[0]);
    return of;
}

uint64_t check_landed(struct sim_worker *w, struct sim_piece *piece, uint64_t round)
{
    uint64_t of = kind_is_open(piece) ? check_open(w, piece, round) : round;
    if (!kind_is_open(piece) && !holds_result(w, piece, round))
        fail_element(w, piece, round, landing_at(w, piece, round), expected(piece, round));
    check_input(w, piece, round);
    check_guard(w, piece, input_at(w, piece, round));
    check_guard(w, piece, landing_at(w, piece, round));
    return of;
}

/* Checks that every worker has the result. Skips workers that already received COMMIT: their result
 * was checked before, and may be overwritten since. */
static void check_all_hold(const struct sim_worker *w, struct sim_piece *piece, uint64_t round)
{
    for (uint32_t i = 0; i < w->job->workers_count; i++) {
        const struct sim_worker *other = &w->job->workers[i];
        const struct sim_view *v = &other->views[piece->id - 1];
        if (other->is_killed || v->has_failed || v->committed >= round)
            continue;
        if (kind_is_loose(piece) || !kind_takes(piece, round, i))
            continue;
        sim_require(w->sim, v->begun >= round && holds_result(other, piece, round),
                    "job %u piece %u round %" PRIu64
                    ": rank %u got COMMIT, rank %u lacks the result",
                    w->job->id, piece->id, round, w->rank, i);
    }
}

/* Adds the result's bits to the hash if all ranks take part in the round, because the inputs alone
 * then determine the bits. */
static void note_bits(const struct sim_worker *w, struct sim_piece *piece, uint64_t round)
{
    const unsigned char *landing = landing_at(w, piece, round);
    uint64_t hash = stream_of(piece, round, w->rank);
    if (kind_is_open(piece) || !plan_has_output(plan_of(piece, round), w->rank))
        return;
    for (size_t i = 0; i < bytes_of(piece); i++)
        hash = (hash ^ landing[i]) * UINT64_C(0x100000001b3);
    w->sim->result.bits += hash;
}

/* Overwrites input and landing area with garbage after the check. If a lane still reads or writes
 * this memory, a sum or a result becomes wrong. */
void check_committed(struct sim_worker *w, struct sim_piece *piece, uint64_t round)
{
    uint64_t of = check_landed(w, piece, round);
    sim_require(w->sim, of == round,
                "job %u rank %u piece %u round %" PRIu64 ": COMMIT for a round of others",
                w->job->id, w->rank, piece->id, round);
    check_all_hold(w, piece, round);
    note_bits(w, piece, round);
    spoil(w, piece, round);
}

/* Fills input and landing area with garbage as soon as they belong to the worker again. */
void spoil(struct sim_worker *w, struct sim_piece *piece, uint64_t round)
{
    memset(input_at(w, piece, round), GARBAGE, bytes_of(piece));
    memset(landing_at(w, piece, round), GARBAGE, bytes_of(piece));
}

/* --- between two turns --- */

/* Returns the maximum number of bytes that a lane keeps between rounds. Pieces with an update rule
 * have parameters and moments, twice. Pieces of kind SIM_FIRST have two results for late ranks.
 * Pieces of kinds SIM_STALE and SIM_ANY have a running sum. A quarter is added, because the arena
 * rounds sizes up. */
static size_t kept_bytes(const struct sim_job *job)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < job->pieces_count; i++) {
        const struct sim_piece *piece = &job->pieces[i];
        uint64_t arrays = piece->kind == SIM_UPDATE  ? 2 * (1 + UPDATE_MOMENTS_MAX)
                          : piece->kind == SIM_FIRST ? 2
                                                     : 1;
        bytes += piece->kind == SIM_SUM ? 0 : arrays * bytes_of(piece) * 5 / 4 + 4096;
    }
    return bytes;
}

/* Returns the bytes of the slots for answers to late ranks. */
static size_t answer_bytes(const struct sim_job *job)
{
    bool has_late = false;
    for (uint32_t i = 0; i < job->pieces_count; i++)
        has_late |= job->pieces[i].kind == SIM_FIRST;
    return has_late ? job->workers_count * ANSWER_BYTES_MOST : 0;
}

/* Pieces, ranks and slots for answers are allocated when a piece is placed or a worker connects.
 * Afterwards only the job's window may be allocated. */
static void check_memory(struct sim *sim, const struct sim_lane *lane)
{
    size_t most = 0;
    if (!lane->is_alive)
        return;
    for (uint32_t i = 0; i < sim->options.jobs; i++) {
        const struct sim_job *job = &sim->jobs[i];
        size_t rank_bytes = 2048; /* announcements, tickets and connection of a rank */
        most += WINDOW_BYTES_MOST + JOB_BYTES_MOST + kept_bytes(job) + answer_bytes(job) +
                job->workers_count * rank_bytes * (1 + job->pieces_count);
    }
    sim_require(sim, memory_bytes(lane->arena) <= most, "%s holds %zu bytes, at most %zu are due",
                lane->address, memory_bytes(lane->arena), most);
}

void check_world(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->options.jobs; i++) {
        if (!sim->jobs[i].is_dropped)
            check_owners(sim, &sim->jobs[i]);
    }
    for (uint32_t i = 0; i < sim->lanes_count; i++)
        check_memory(sim, &sim->lanes[i]);
}

void check_lane_is_empty(struct sim *sim, const struct sim_lane *lane)
{
    sim_require(sim, lane_connections(lane->lane) == 0, "%s has %zu connections left",
                lane->address, lane_connections(lane->lane));
    sim_require(sim, lane_is_quiet(lane->lane), "%s is not quiet", lane->address);
    sim_require(sim, memory_blocks(lane->arena) == 0 && memory_bytes(lane->arena) == 0,
                "%s keeps %zu blocks, %zu bytes of jobs that are gone", lane->address,
                memory_blocks(lane->arena), memory_bytes(lane->arena));
    sim_require(sim, arena_allocated_bytes(lane->arena) == 0,
                "the arena of %s still says %zu bytes", lane->address,
                arena_allocated_bytes(lane->arena));
    sim_require(sim, mem_fabric_counters(lane->fabrics[SIM_MESSAGES]).changed_early == 0,
                "%s changed a slot before it was written", lane->address);
}
