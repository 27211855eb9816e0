/* Many random worlds, each from a seed. GRADPOOL_TEST_SEED runs one of them again. */
#include "test/sim/sim.h"

#include "svc/base/log.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define WORLDS 300
#define WORLDS_LONG 20000

/* The seeds to run: one that was asked for, or the first so many. */
static void each_world(uint64_t count, struct sim_result *ret_sum,
                       void (*change)(struct sim_options *options))
{
    const char *one = getenv("GRADPOOL_TEST_SEED");
    uint64_t first = one ? strtoull(one, NULL, 10) : 1;
    for (uint64_t seed = first; seed < first + (one ? 1 : count); seed++) {
        struct sim_options options = sim_options_draw(seed);
        if (change)
            change(&options);
        struct sim_result result = sim_run(&options);
        ret_sum->turns += result.turns;
        ret_sum->rounds += result.rounds;
        ret_sum->results += result.results;
        ret_sum->commits += result.commits;
        ret_sum->repeats += result.repeats;
        ret_sum->laps += result.laps;
        ret_sum->deaths += result.deaths;
        ret_sum->standings += result.standings;
        ret_sum->jobs_done += result.jobs_done;
        ret_sum->jobs_failed += result.jobs_failed;
    }
}

static void every_random_world_keeps_all_invariants(void **state)
{
    struct sim_result sum = {0};
    each_world(getenv("GRADPOOL_TEST_LONG") ? WORLDS_LONG : WORLDS, &sum, NULL);
    print_message("# %" PRIu64 " turns, %" PRIu64 " rounds, %" PRIu64 " results, %" PRIu64
                  " commits, %" PRIu64 " repeats, %" PRIu64 " laps, %" PRIu64 " deaths, %" PRIu64
                  " standings, %" PRIu64 " jobs done, %" PRIu64 " failed\n",
                  sum.turns, sum.rounds, sum.results, sum.commits, sum.repeats, sum.laps,
                  sum.deaths, sum.standings, sum.jobs_done, sum.jobs_failed);
    assert_true(sum.jobs_done > 0);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(every_random_world_keeps_all_invariants),
};

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    log_set_level(getenv("DBG") ? LOG_LEVEL_DEBUG
                                : LOG_LEVEL_ERROR); /* refusals and deaths are wanted here */
    return cmocka_run_group_tests_name("sim_lane", cases, NULL, NULL);
}
