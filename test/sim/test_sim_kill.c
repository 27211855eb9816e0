/* Kills the owner of a piece before its n-th post, for each n up to the number of posts of the
 * world (without --long, only for some n). So the owner dies between any two RESULTs, and between
 * any two transfers of a chunk. The seed determines which part of the posts in flight arrives. The
 * next owner finishes with the same bits. */
#include "test/lib/extent.h"
#include "test/sim/sim_types.h"

#include "svc/base/log.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define WORKERS 3
#define CHUNKS 3
/* Number of elements that three chunks need: a chunk of three workers has at most 512 KiB. */
#define LONG (CHUNKS * (512u << 10) / sizeof(float))

static struct sim_options one_piece(enum sim_reach reach, enum sim_kinds kinds, uint64_t elements)
{
    return (struct sim_options){.lanes = 1,
                                .jobs = 1,
                                .workers = WORKERS,
                                .pieces = 1,
                                .rounds = 2,
                                .elements_most = elements,
                                .is_exact = true,
                                .kinds = kinds,
                                .reach = reach,
                                .delay_max_ns = 3000,
                                .payload_bytes_max = 4096};
}

struct outcome {
    uint64_t posts, finished, lost;
};

/* Runs one world to its end. Each result must arrive once, and is checked at its arrival (S1 to
 * S6). */
static void kill_before(struct sim_options options, uint64_t post, uint64_t bits,
                        struct outcome *outcome)
{
    options.fault = (struct sim_fault){.post = post, .fault = MEM_FAULT_KILL};
    struct sim_result result = sim_run(&options);
    assert_int_equal(result.deaths, 1);
    assert_int_equal(result.jobs_done, 1);
    assert_in_range(result.losses, 0, WORKERS);
    if (result.losses == 0)
        assert_true(result.bits == bits);
    outcome->finished += result.losses == 0;
    outcome->lost += result.losses > 0;
}

/* Runs small worlds from several seeds. */
static void kill_before_each(struct sim_options options, struct outcome *outcome)
{
    uint64_t seeds = options.elements_most == LONG ? 1 : 4, stride = extent(3, 11, 1);
    for (options.seed = 1; options.seed <= seeds; options.seed++) {
        options.fault = (struct sim_fault){0};
        struct sim_result whole = sim_run(&options);
        assert_int_equal(whole.deaths + whole.losses, 0);
        for (uint64_t post = 1; post <= whole.posts; post += stride, outcome->posts++)
            kill_before(options, post, whole.bits, outcome);
    }
    print_message("# killed before %" PRIu64 " posts: %" PRIu64 " finished, %" PRIu64 " lost\n",
                  outcome->posts, outcome->finished, outcome->lost);
}

static void a_sum_is_finished_wherever_its_owner_dies(enum sim_reach reach, uint64_t elements)
{
    struct outcome outcome = {0};
    kill_before_each(one_piece(reach, SIM_KINDS_PLAIN, elements), &outcome);
    assert_int_equal(outcome.lost, 0);
    assert_int_equal(outcome.finished, outcome.posts);
}

static void a_sum_of_several_chunks_survives_the_death_of_its_owner_at_any_point(void **state)
{
    a_sum_is_finished_wherever_its_owner_dies(SIM_MESSAGES, LONG);
}

static void a_sum_of_one_chunk_survives_the_death_of_its_owner_at_any_point(void **state)
{
    a_sum_is_finished_wherever_its_owner_dies(SIM_MESSAGES, 2000);
}

static void a_sum_in_mapped_memory_survives_the_death_of_its_owner_at_any_point(void **state)
{
    a_sum_is_finished_wherever_its_owner_dies(SIM_MAPPED, LONG);
}

/* Before the first commit a new owner can repeat all rounds. After the first commit, parameters and
 * moments are lost with their lane, and each worker that needs them must be informed. */
static void an_update_is_finished_or_its_loss_reported_after_the_death_of_its_owner(void **state)
{
    for (int reach = SIM_MESSAGES; reach <= SIM_MAPPED; reach++) {
        struct outcome outcome = {0};
        kill_before_each(one_piece((enum sim_reach)reach, SIM_KINDS_UPDATE, LONG), &outcome);
        assert_true(outcome.finished > 0 && outcome.lost > 0);
        assert_int_equal(outcome.finished + outcome.lost, outcome.posts);
    }
}

/* With a copy in a worker's memory no state is lost, and every bit of the results is equal. */
static void an_update_with_a_copy_survives_the_death_of_its_owner_at_any_point(void **state)
{
    for (int reach = SIM_MESSAGES; reach <= SIM_MAPPED; reach++) {
        struct outcome outcome = {0};
        struct sim_options options = one_piece((enum sim_reach)reach, SIM_KINDS_UPDATE, LONG);
        options.has_copies = true;
        options.rounds = 3;
        kill_before_each(options, &outcome);
        assert_int_equal(outcome.lost, 0);
        assert_int_equal(outcome.finished, outcome.posts);
    }
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(a_sum_of_several_chunks_survives_the_death_of_its_owner_at_any_point),
    cmocka_unit_test(a_sum_of_one_chunk_survives_the_death_of_its_owner_at_any_point),
    cmocka_unit_test(a_sum_in_mapped_memory_survives_the_death_of_its_owner_at_any_point),
    cmocka_unit_test(an_update_is_finished_or_its_loss_reported_after_the_death_of_its_owner),
    cmocka_unit_test(an_update_with_a_copy_survives_the_death_of_its_owner_at_any_point),
};

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    log_set_level(LOG_LEVEL_ERROR); /* deaths are expected here */
    return cmocka_run_group_tests_name("sim_kill", cases, NULL, NULL);
}
