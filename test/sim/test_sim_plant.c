/* Checks that random worlds find a planted mistake (meson.build lists the mistakes). The worlds run
 * in separate processes, because a world with the mistake may crash or hang. */
#include "test/sim/sim.h"

#include "svc/base/log.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* the same number as in test_sim_lane */
#define WORLDS 800
#define WORLDS_A_PROCESS 40
#define FOUND 9

static int run_worlds(uint64_t first)
{
    sim_exit_on_failure(FOUND);
    for (uint64_t seed = first; seed < first + WORLDS_A_PROCESS; seed++) {
        struct sim_options options = sim_options_draw(seed);
        (void)sim_run(&options);
    }
    return 0;
}

/* Returns whether one of these worlds has reported the broken invariant. */
static bool find(uint64_t first)
{
    int status = 0;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(run_worlds(first));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_true(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == FOUND);
    return WEXITSTATUS(status) == FOUND;
}

static void the_walk_finds_planted_mistakes(void **state)
{
    uint64_t first = 1;
    while (first < WORLDS && !find(first))
        first += WORLDS_A_PROCESS;
    assert_true(first < WORLDS);
    print_message("# found by one of the worlds %" PRIu64 " to %" PRIu64 "\n", first,
                  first + WORLDS_A_PROCESS - 1);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(the_walk_finds_planted_mistakes),
};

int main(void)
{
    log_set_level(LOG_LEVEL_ERROR);
    return cmocka_run_group_tests_name("sim_plant", cases, NULL, NULL);
}
