/* Runs many random worlds, each from its seed. GRADPOOL_TEST_SEED repeats the world of one seed. */
#include "test/lib/extent.h"
#include "test/sim/sim.h"

#include "svc/base/log.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define WORLDS 800
#define WORLDS_LONG 20000

static void add(struct sim_result *sum, const struct sim_result *result)
{
    sum->turns += result->turns;
    sum->rounds += result->rounds;
    sum->results += result->results;
    sum->commits += result->commits;
    sum->repeats += result->repeats;
    sum->laps += result->laps;
    sum->deaths += result->deaths;
    sum->standings += result->standings;
    sum->handovers += result->handovers;
    sum->undone += result->undone;
    sum->losses += result->losses;
    sum->comebacks += result->comebacks;
    sum->jobs_done += result->jobs_done;
    sum->jobs_failed += result->jobs_failed;
}

/* Returns whether one world is repeated, which may lack every event that some world must have. */
static bool is_one_world(void) { return getenv("GRADPOOL_TEST_SEED"); }

/* Runs the world of GRADPOOL_TEST_SEED, or the first `count` worlds. */
static struct sim_result run_worlds(uint64_t count, bool has_copies)
{
    struct sim_result sum = {0};
    const char *one = getenv("GRADPOOL_TEST_SEED");
    uint64_t first = one ? strtoull(one, NULL, 10) : 1;
    for (uint64_t seed = first; seed < first + (one ? 1 : count); seed++) {
        struct sim_options options = sim_options_draw(seed);
        options.has_copies = has_copies;
        options.kinds = has_copies ? SIM_KINDS_UPDATE : options.kinds;
        struct sim_result result = sim_run(&options);
        add(&sum, &result);
    }
    return sum;
}

static void every_random_world_keeps_all_invariants(void **state)
{
    struct sim_result sum = run_worlds(extent(WORLDS, WORLDS / 4, WORLDS_LONG), false);
    print_message("# %" PRIu64 " turns, %" PRIu64 " rounds, %" PRIu64 " results, %" PRIu64
                  " commits, %" PRIu64 " repeats, %" PRIu64 " laps, %" PRIu64 " deaths, %" PRIu64
                  " standings, %" PRIu64 " handed over, %" PRIu64 " not, %" PRIu64
                  " losses, %" PRIu64 " made again, %" PRIu64 " jobs done, %" PRIu64 " failed\n",
                  sum.turns, sum.rounds, sum.results, sum.commits, sum.repeats, sum.laps,
                  sum.deaths, sum.standings, sum.handovers, sum.undone, sum.losses, sum.comebacks,
                  sum.jobs_done, sum.jobs_failed);
    assert_true(is_one_world() || (sum.jobs_done > 0 && sum.comebacks > 0));
}

static void the_same_seed_is_the_same_world(void **state)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct sim_options options = sim_options_draw(seed);
        struct sim_result once = sim_run(&options), again = sim_run(&options);
        assert_memory_equal(&once, &again, sizeof once);
        options.seed++;
        again = sim_run(&options);
        assert_true(once.transcript != again.transcript);
    }
}

/* Runs pieces with update rules only. A copy of each state is in a worker's memory. */
static void parameters_with_a_copy_outlive_their_lanes_in_every_random_world(void **state)
{
    struct sim_result sum = run_worlds(extent(WORLDS, WORLDS / 4, WORLDS_LONG) / 4, true);
    print_message("# %" PRIu64 " rounds, %" PRIu64 " deaths, %" PRIu64 " handed over, %" PRIu64
                  " jobs done, %" PRIu64 " failed\n",
                  sum.rounds, sum.deaths, sum.handovers, sum.jobs_done, sum.jobs_failed);
    assert_int_equal(sum.losses, 0);
    assert_true(is_one_world() || sum.jobs_done > 0);
}

/* The bits of sums and updates must not depend on the lanes. */
static void a_moved_piece_has_the_same_bits_as_an_unmoved_one(void **state)
{
    uint64_t moved = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct sim_options options = sim_options_draw(seed);
        options.lanes = 3;
        options.kinds = SIM_KINDS_MIXED;
        options.lane_deaths = options.worker_deaths = options.cuts = options.moves = 0;
        options.handovers = 0;
        options.laps = options.leaves_early = false;
        struct sim_result stays = sim_run(&options);
        options.handovers = 40;
        struct sim_result moves = sim_run(&options);
        assert_int_equal(stays.jobs_done, moves.jobs_done);
        assert_true(stays.bits == moves.bits);
        moved += moves.handovers;
    }
    print_message("# %" PRIu64 " handed over\n", moved);
    assert_true(moved > 60);
}

/* A lane informs some ranks that a result was lost, and dies before the others are informed. Its
 * successor hears of the loss from the informed ranks. */
static void a_loss_that_some_ranks_know_outlives_its_lane(void **state)
{
    struct sim_options options = sim_options_draw(700037);
    options.lanes = 3;
    options.workers = 4;
    options.handovers = 30;
    options.stops = 4;
    options.lane_deaths = 2;
    options.cuts = 3;
    options.kinds = SIM_KINDS_MIXED;
    struct sim_result result = sim_run(&options);
    assert_true(result.losses > 0);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(a_loss_that_some_ranks_know_outlives_its_lane),
    cmocka_unit_test(the_same_seed_is_the_same_world),
    cmocka_unit_test(a_moved_piece_has_the_same_bits_as_an_unmoved_one),
    cmocka_unit_test(every_random_world_keeps_all_invariants),
    cmocka_unit_test(parameters_with_a_copy_outlive_their_lanes_in_every_random_world),
};

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    log_set_level(getenv("DBG") ? LOG_LEVEL_DEBUG
                                : LOG_LEVEL_ERROR); /* refusals and deaths are expected here */
    return cmocka_run_group_tests_name("sim_lane", cases, NULL, NULL);
}
