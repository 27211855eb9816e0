/* Makes every operation fail, one after the other: the n-th post and the n-th allocation, for n =
 * 1, 2, ... until a run has fewer than n operations. There must be no crash, no leak and no wrong
 * sum. */
#include "test/sim/sim_types.h"

#include "svc/base/log.h"
#include "svc/reduce/reduce.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#define LANES 2
#define JOBS 2

/* A small world with reads, writes, inline inputs, two chunks and two lanes. */
static struct sim_options small_world(enum sim_reach reach)
{
    return (struct sim_options){.seed = 7,
                                .lanes = LANES,
                                .jobs = JOBS,
                                .workers = 3,
                                .pieces = 2,
                                .rounds = 2,
                                .elements_most = 100,
                                .is_exact = true,
                                .reach = reach,
                                .delay_max_ns = 3000,
                                .payload_bytes_max = 4096};
}

/* Makes each post fail, in a run of its own. The results must have the same bits as without a
 * failure. Returns the number of new connections. */
static uint64_t fail_each_post(struct sim_options options, struct sim_fault fault)
{
    options.fault.is_worker = fault.is_worker;
    struct sim_result result = sim_run(&options);
    uint64_t posts = result.posts, bits = result.bits, comebacks = 0;
    for (fault.post = 1; fault.post <= posts; fault.post++) {
        options.fault = fault;
        result = sim_run(&options);
        assert_int_equal(result.jobs_done, JOBS);
        assert_true(result.bits == bits);
        comebacks += result.comebacks;
    }
    assert_true(posts >= 4);
    return comebacks;
}

static uint64_t fail_everywhere(struct sim_options options, struct sim_fault fault)
{
    uint64_t comebacks = 0;
    for (int reach = SIM_MESSAGES; reach <= SIM_MIXED; reach++) {
        options.reach = (enum sim_reach)reach;
        comebacks += fail_each_post(options, fault);
    }
    return comebacks;
}

static void any_post_of_a_lane_may_find_no_room(void **state)
{
    struct sim_fault fault = {.fault = MEM_FAULT_AGAIN};
    assert_int_equal(fail_everywhere(small_world(SIM_MESSAGES), fault), 0);
}

static void any_post_of_a_worker_may_find_no_room(void **state)
{
    struct sim_fault fault = {.fault = MEM_FAULT_AGAIN, .is_worker = true};
    assert_int_equal(fail_everywhere(small_world(SIM_MESSAGES), fault), 0);
}

static void a_connection_that_ends_at_any_post_of_a_lane_is_made_again(void **state)
{
    struct sim_fault fault = {.fault = MEM_FAULT_RESET};
    assert_true(fail_everywhere(small_world(SIM_MESSAGES), fault) > 0);
}

/* Checks parameters and moments: each step must be applied once. */
static void a_step_of_an_update_rule_is_applied_once_after_the_end_of_any_connection(void **state)
{
    struct sim_options options = small_world(SIM_MESSAGES);
    options.kinds = SIM_KINDS_UPDATE;
    options.rounds = 4;
    options.lanes = 1;
    assert_true(fail_everywhere(options, (struct sim_fault){.fault = MEM_FAULT_RESET}) > 0);
    options.has_copies = true;
    assert_true(fail_everywhere(options, (struct sim_fault){.fault = MEM_FAULT_RESET}) > 0);
}

/* Breaks the connection at each post, so at every point of a round. At some points the results of
 * all other workers have been sent, but not the result of this worker. The round must then not be
 * committed. */
static void a_connection_that_ends_at_any_post_of_a_worker_is_made_again(void **state)
{
    uint64_t comebacks = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct sim_options options = small_world(SIM_MESSAGES);
        options.seed = seed;
        options.repeats = true;
        comebacks += fail_each_post(
            options, (struct sim_fault){.fault = MEM_FAULT_RESET, .is_worker = true});
    }
    assert_true(comebacks > 0);
}

/* Uses more ranks than one pass can sum, so that partial sums need slots in mapped memory, too. */
static void any_allocation_of_a_running_lane_may_fail(void **state)
{
    for (uint32_t workers = 2; workers <= 10; workers += 8) {
        for (int reach = SIM_MESSAGES; reach <= SIM_MIXED; reach++) {
            struct sim_options options = small_world((enum sim_reach)reach);
            struct sim_result result;
            options.workers = workers;
            do {
                options.allocation_fails++;
                result = sim_run(&options);
                assert_int_equal(result.jobs_done + result.jobs_failed, JOBS);
            } while (options.allocation_fails <= result.allocations);
            assert_int_equal(result.jobs_failed, 0);
        }
    }
}

/* Opens a lane without a network, which placement does not need. */
static struct lane *open_lane(struct arena **ret_arena)
{
    struct lane *lane;
    assert_int_equal(arena_create(NULL, 0, ret_arena), 0);
    struct lane_options options = {.id = 1, .incarnation = 1, .arena = *ret_arena};
    assert_int_equal(lane_create(&options, &lane), 0);
    memory_start();
    return lane;
}

static int place_many(struct lane *lane)
{
    struct lane_piece pieces[100];
    for (uint32_t i = 0; i < 100; i++)
        pieces[i] = (struct lane_piece){
            .id = i, .task = 1, .dtype = REDUCE_F32, .elements = i, .tensor = "w"};
    return lane_place(lane, 5, "job", 3, 1, false, pieces, 100);
}

static void any_allocation_of_placing_may_fail_and_placing_again_works(void **state)
{
    bool has_failed = true;
    for (uint64_t n = 1; has_failed; n++) {
        struct arena *arena;
        struct lane *lane = open_lane(&arena);
        memory_fail(n);
        int r = place_many(lane);
        has_failed = memory_allocations() >= n;
        assert_true(r == 0 || (r == -ENOMEM && has_failed));
        assert_int_equal(place_many(lane), 0);
        lane_drop(lane, 5, NULL, 0);
        (void)lane_poll(lane, 0);
        assert_int_equal(memory_blocks(arena), 0);
        assert_int_equal(arena_allocated_bytes(arena), 0);
        lane_destroy(lane);
        arena_destroy(arena);
    }
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(any_post_of_a_lane_may_find_no_room),
    cmocka_unit_test(any_post_of_a_worker_may_find_no_room),
    cmocka_unit_test(a_connection_that_ends_at_any_post_of_a_lane_is_made_again),
    cmocka_unit_test(a_step_of_an_update_rule_is_applied_once_after_the_end_of_any_connection),
    cmocka_unit_test(a_connection_that_ends_at_any_post_of_a_worker_is_made_again),
    cmocka_unit_test(any_allocation_of_a_running_lane_may_fail),
    cmocka_unit_test(any_allocation_of_placing_may_fail_and_placing_again_works),
};

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    log_set_level(LOG_LEVEL_ERROR); /* refusals and deaths are expected here */
    return cmocka_run_group_tests_name("sim_faults", cases, NULL, NULL);
}
