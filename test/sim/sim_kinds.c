/* Simulates pieces other than sums of all ranks: update rules, partial quorums, clocks of each
 * rank. Checks their results, and the sets of ranks named in results (S7 to S9). Must never read a
 * lane's state. */
#include "test/sim/sim_types.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Number of mantissa bits of a float. A sum of this many different powers of two is exact in any
 * order. */
#define EXACT_BITS 24

static size_t bytes_of(const struct sim_piece *piece) { return piece->elements * sizeof(float); }

/* --- properties of kinds --- */

bool kind_is_loose(const struct sim_piece *piece)
{
    return piece->kind == SIM_STALE || piece->kind == SIM_ANY;
}

/* Returns whether the lane has state of the piece that no worker has. The loss of the lane then
 * loses this state. */
bool kind_has_state(const struct sim_piece *piece)
{
    return kind_is_loose(piece) || piece->kind == SIM_UPDATE;
}

/* Returns whether only some ranks take part in a round, so that its result is not known in
 * advance. */
bool kind_is_open(const struct sim_piece *piece) { return piece->kind >= SIM_FIRST; }

/* Returns whether the last round of the piece has ended. A new owner would then never send a first
 * result to a late rank (W12). */
bool kind_is_stranded(const struct sim_piece *piece)
{
    bool is_past = false;
    for (uint32_t rank = 0; rank < piece->job->workers_count; rank++)
        is_past |= piece->job->workers[rank].views[piece->id - 1].committed == piece->job->rounds;
    return piece->kind == SIM_FIRST && piece->state_died && is_past;
}

static void draw_bound(struct sim *sim, struct sim_piece *piece)
{
    uint32_t workers = piece->job->workers_count;
    if (piece->kind == SIM_UPDATE)
        piece->rule = (enum update_rule)(1 + sim_draw(sim, UPDATE_RULES - 1));
    if (piece->kind == SIM_FIRST)
        piece->bound = 1 + (uint32_t)sim_draw(sim, workers);
    if (piece->kind == SIM_STALE)
        piece->bound = (uint32_t)sim_draw(sim, 3);
}

/* Returns the number of rounds whose contributions one element can represent. */
static uint32_t rounds_an_element(const struct sim_piece *piece)
{
    return EXACT_BITS / piece->job->workers_count;
}

static uint64_t elements_least(const struct sim_piece *piece)
{
    uint32_t rounds = rounds_an_element(piece);
    return kind_is_loose(piece) ? (piece->job->rounds + rounds - 1) / rounds : 1;
}

/* Returns the maximum number of elements. The limit of SIM_FIRST is lower, because all results of
 * this kind are stored. */
static uint64_t elements_most(const struct sim_piece *piece)
{
    return piece->kind == SIM_FIRST ? 600 : UINT64_MAX;
}

void kind_draw(struct sim *sim, struct sim_piece *piece)
{
    enum sim_kind kind = SIM_SUM;
    if (sim->options.kinds == SIM_KINDS_MIXED && sim_chance(sim, 2))
        kind = (enum sim_kind)(1 + sim_draw(sim, SIM_ANY));
    else if (sim->options.kinds == SIM_KINDS_UPDATE)
        kind = SIM_UPDATE;
    piece->kind = kind;
    if (kind == SIM_SUM)
        return;
    draw_bound(sim, piece);
    if (piece->elements < elements_least(piece))
        piece->elements = elements_least(piece);
    if (piece->elements > elements_most(piece))
        piece->elements = elements_most(piece);
    for (int i = 0; i < 1 + UPDATE_MOMENTS_MAX && kind == SIM_UPDATE; i++)
        piece->model[i] = calloc(piece->elements, sizeof(float));
    if (kind == SIM_FIRST)
        piece->history = calloc(piece->job->rounds + 1, sizeof *piece->history);
}

void kind_free(struct sim_piece *piece)
{
    for (int i = 0; i < 1 + UPDATE_MOMENTS_MAX; i++)
        free(piece->model[i]);
    for (uint64_t round = 1; piece->history && round <= piece->job->rounds; round++)
        free(piece->history[round].result);
    free(piece->history);
}

struct lane_terms kind_terms(const struct sim_piece *piece)
{
    static const enum quorum quorums[] = {
        [SIM_FIRST] = QUORUM_FIRST, [SIM_STALE] = QUORUM_STALE, [SIM_ANY] = QUORUM_ANY};
    return (struct lane_terms){
        .quorum = quorums[piece->kind], .bound = piece->bound, .rule = piece->rule};
}

/* Returns the settings of a round. They differ between rounds, so a wrong round is detected. */
struct update_settings kind_settings(const struct sim_piece *piece, uint64_t round)
{
    (void)piece;
    return (struct update_settings){.rate = 0.01 * (double)(1 + round % 5),
                                    .weight_decay = 0.1,
                                    .momentum = 0.9,
                                    .beta1 = 0.9,
                                    .beta2 = 0.999,
                                    .epsilon = 1e-8};
}

/* --- update rules --- */

/* Advances the model by one round. `mean` contains the mean of the gradients or the broadcast, and
 * receives the parameters. */
void kind_update(struct sim_piece *piece, uint64_t round, bool is_step, float *mean)
{
    const struct update_settings settings = kind_settings(piece, round);
    const void *source = mean;
    void *target = mean;
    const struct reduce_pass sums = {.targets = &target,
                                     .targets_count = 1,
                                     .sources = &source,
                                     .sources_count = 1,
                                     .elements = piece->elements};
    const struct update_state state = {.parameters = piece->model[0],
                                       .moments = {piece->model[1], piece->model[2]},
                                       .ret_parameters = piece->model[0],
                                       .ret_moments = {piece->model[1], piece->model[2]}};
    if (is_step)
        update_pick(REDUCE_C, piece->rule, REDUCE_F32, REDUCE_F32)(&sums, &settings,
                                                                   ++piece->model_steps, &state);
    else
        piece->model_steps = 0;
    memcpy(piece->model[0], mean, bytes_of(piece));
    piece->model_round = round;
}

/* --- the first k of n --- */

static bool has_begun(const struct sim_piece *piece, uint32_t rank, uint64_t round)
{
    return piece->job->workers[rank].views[piece->id - 1].begun >= round;
}

static bool set_may_be(const struct sim_piece *piece, uint32_t set, uint64_t round)
{
    if ((uint32_t)__builtin_popcount(set) < piece->bound)
        return false;
    for (uint32_t rank = 0; rank < piece->job->workers_count; rank++) {
        if (set >> rank & 1 && !has_begun(piece, rank, round))
            return false;
    }
    return true;
}

static float sum_of(const struct sim_piece *piece, uint32_t set, uint64_t round, uint64_t element)
{
    float sum = 0;
    bool is_first = true;
    for (uint32_t rank = 0; rank < piece->job->workers_count; rank++) {
        if (!(set >> rank & 1))
            continue;
        float one = gradient_of(piece, round, rank, element);
        sum = is_first ? one : sum + one;
        is_first = false;
    }
    bool divides = plan_of(piece, round).operation == RECORD_MEAN;
    return divides ? sum / (float)__builtin_popcount(set) : sum;
}

static bool is_sum_of(const struct sim_piece *piece, uint32_t set, uint64_t round,
                      const float *result)
{
    for (uint64_t e = 0; e < piece->elements; e++) {
        float want = sum_of(piece, set, round, e);
        if (memcmp(&want, &result[e], sizeof want) != 0)
            return false;
    }
    return true;
}

/* Stores the set of ranks that the first result of a round names. All other results of the round
 * must name the same set. */
static bool is_result_of(struct sim_piece *piece, uint64_t round, const float *result)
{
    struct sim_result_of *known = &piece->history[round];
    if (known->result)
        return memcmp(known->result, result, bytes_of(piece)) == 0;
    for (uint32_t set = 1; set < 1u << piece->job->workers_count; set++) {
        if (!set_may_be(piece, set, round) || !is_sum_of(piece, set, round, result))
            continue;
        known->set = set;
        known->result = malloc(bytes_of(piece));
        memcpy(known->result, result, bytes_of(piece));
        return true;
    }
    return false;
}

/* Returns the round of a result: the given round or, for a late worker, a later one. 0: none. */
static uint64_t find_round(struct sim_piece *piece, uint64_t round, const float *result)
{
    while (round <= piece->job->rounds && !is_result_of(piece, round, result))
        round++;
    return round <= piece->job->rounds ? round : 0;
}

bool kind_takes(const struct sim_piece *piece, uint64_t round, uint32_t rank)
{
    return piece->kind != SIM_FIRST || (piece->history[round].set >> rank & 1);
}

/* --- clocks --- */

float kind_contribution(const struct sim_piece *piece, uint64_t round, uint32_t rank,
                        uint64_t element)
{
    uint32_t rounds = rounds_an_element(piece);
    uint64_t blocks = elements_least(piece);
    bool is_here = (round - 1) / rounds == element % blocks;
    return is_here ? (float)(1u << (rank * rounds + (round - 1) % rounds)) : 0;
}

/* Returns the number of rounds of the rank in the sum, or -1 if no number of rounds gives this sum.
 * The sum must contain the rank's first rounds, each once. */
static int64_t count_rounds(const struct sim_piece *piece, const float *sum, uint32_t rank)
{
    uint32_t rounds = rounds_an_element(piece);
    int64_t count = 0;
    bool has_gap = false;
    for (uint64_t round = 1; round <= piece->job->rounds; round++) {
        uint32_t bits = (uint32_t)sum[(round - 1) / rounds];
        bool is_in = bits >> (rank * rounds + (round - 1) % rounds) & 1;
        if (is_in && has_gap)
            return -1;
        has_gap |= !is_in;
        count += is_in;
    }
    return count;
}

static bool is_whole(const struct sim_piece *piece, const float *sum)
{
    uint64_t blocks = elements_least(piece);
    for (uint64_t e = 0; e < piece->elements; e++) {
        if (sum[e] != sum[e % blocks] || sum[e] < 0 || sum[e] >= 1u << EXACT_BITS ||
            sum[e] != (float)(uint32_t)sum[e])
            return false;
    }
    return true;
}

/* Checks a sum. The sum must contain all rounds committed before the announcement, no round twice,
 * and only rounds that a worker has begun. No rank may be further ahead than the terms allow. */
static bool is_sum_so_far(const struct sim_worker *w, const struct sim_piece *piece, uint64_t round,
                          const float *sum)
{
    const struct sim_view *v = &w->views[piece->id - 1];
    if (!is_whole(piece, sum))
        return false;
    for (uint32_t rank = 0; rank < piece->job->workers_count; rank++) {
        int64_t count = count_rounds(piece, sum, rank);
        const struct sim_view *of = &piece->job->workers[rank].views[piece->id - 1];
        /* A worker that was informed of a lost state no longer knows its number of rounds. */
        bool is_begun = of->has_failed || count <= (int64_t)of->begun;
        if (count < (int64_t)v->known[rank] || !is_begun ||
            (rank == w->rank && count != (int64_t)round))
            return false;
        if (piece->kind == SIM_STALE && round > 1 + (uint64_t)count + piece->bound)
            return false;
    }
    return true;
}

void kind_begin(struct sim_worker *w, const struct sim_piece *piece)
{
    struct sim_view *v = &w->views[piece->id - 1];
    for (uint32_t rank = 0; rank < piece->job->workers_count; rank++)
        v->known[rank] = (uint32_t)piece->job->workers[rank].views[piece->id - 1].committed;
}

/* --- partial quorums and clocks --- */

uint64_t kind_result_round(const struct sim_worker *w, struct sim_piece *piece, uint64_t round)
{
    const float *result = landing_at(w, piece, round);
    if (piece->kind == SIM_FIRST)
        return find_round(piece, round, result);
    return is_sum_so_far(w, piece, round, result) ? round : 0;
}
