/* Tests clocks of members, their minimum, and the steps that each consistency permits. */
#include "svc/lane/table/clock.h"
#include "test/unit/lane/table/table_rig.h"

#define RANKS 6

static struct rig memory;

static void begin(struct table_clocks *clocks, uint32_t members, uint64_t first)
{
    rig_init_memory(&memory);
    assert_int_equal(table_clocks_init(clocks, &memory.allowance, RANKS, 0), 0);
    for (uint32_t rank = 0; rank < members; rank++)
        assert_int_equal(table_clocks_enter(clocks, rank, first), 0);
}

static void end(struct table_clocks *clocks)
{
    table_clocks_fini(clocks);
    assert_int_equal(memory.blocks, 0);
}

static void the_minimum_is_the_smallest_clock(void **state)
{
    struct table_clocks clocks;
    begin(&clocks, 3, 1);
    assert_int_equal(clocks.minimum, 1);
    assert_int_equal(table_clocks_end(&clocks, 0, 1), 0);
    assert_int_equal(table_clocks_end(&clocks, 0, 2), 0);
    assert_int_equal(table_clocks_end(&clocks, 1, 1), 0);
    assert_false(table_clocks_have_ended(&clocks, 1));
    assert_int_equal(table_clocks_end(&clocks, 2, 1), 1);
    assert_int_equal(clocks.minimum, 2);
    assert_int_equal(clocks.largest, 3);
    assert_true(table_clocks_have_ended(&clocks, 1));
    assert_false(table_clocks_have_ended(&clocks, 2));
    end(&clocks);
}

static void a_clock_never_goes_back(void **state)
{
    struct table_clocks clocks;
    begin(&clocks, 2, 5);
    assert_int_equal(table_clocks_end(&clocks, 0, 7), 0);
    assert_int_equal(table_clocks_end(&clocks, 0, 7), 0); /* a repeated end has no effect */
    assert_int_equal(table_clocks_end(&clocks, 0, 6), 0); /* an earlier end has no effect */
    assert_int_equal(table_clocks_of(&clocks, 0), 8);
    assert_int_equal(table_clocks_end(&clocks, 1, 5), 1);
    assert_int_equal(table_clocks_enter(&clocks, 2, 5), -ERANGE);
    assert_int_equal(table_clocks_enter(&clocks, 2, UINT64_MAX), -EINVAL);
    assert_int_equal(table_clocks_enter(&clocks, 2, 6), 0);
    assert_int_equal(clocks.minimum, 6);
    for (uint32_t rank = 0; rank < 3; rank++)
        assert_true(table_clocks_leave(&clocks, rank) >= 0);
    assert_int_equal(clocks.members, 0);
    assert_true(clocks.minimum >= 6);
    assert_int_equal(clocks.largest, 8);
    assert_int_equal(table_clocks_enter(&clocks, 1, 5), -ERANGE);
    end(&clocks);
}

static void a_lost_worker_frees_the_minimum(void **state)
{
    struct table_clocks clocks;
    begin(&clocks, 3, 1);
    assert_int_equal(table_clocks_end(&clocks, 0, 4), 0);
    assert_int_equal(table_clocks_end(&clocks, 1, 3), 0);
    assert_false(table_clocks_have_ended(&clocks, 1));
    assert_int_equal(table_clocks_leave(&clocks, 2), 1);
    assert_int_equal(clocks.minimum, 4);
    assert_int_equal(table_clocks_leave(&clocks, 0), 0);
    assert_int_equal(clocks.minimum, 4);
    assert_int_equal(table_clocks_leave(&clocks, 0), -EINVAL);
    assert_int_equal(table_clocks_end(&clocks, 0, 5), -EINVAL);
    end(&clocks);
}

static void a_late_worker_holds_the_minimum(void **state)
{
    struct table_clocks clocks;
    begin(&clocks, 2, 1);
    table_clocks_end(&clocks, 0, 3);
    table_clocks_end(&clocks, 1, 3);
    assert_int_equal(clocks.minimum, 4);
    assert_int_equal(table_clocks_enter(&clocks, 5, 4), 0);
    assert_int_equal(table_clocks_enter(&clocks, 5, 4), -EALREADY);
    assert_int_equal(table_clocks_enter(&clocks, RANKS, 4), -EINVAL);
    assert_int_equal(table_clocks_end(&clocks, 0, 4), 0);
    assert_int_equal(table_clocks_end(&clocks, 1, 4), 0);
    assert_int_equal(clocks.minimum, 4);
    assert_int_equal(table_clocks_end(&clocks, 5, 4), 1);
    end(&clocks);
}

static void a_clock_without_a_next_one_is_refused(void **state)
{
    struct table_clocks clocks;
    begin(&clocks, 1, 1);
    assert_int_equal(table_clocks_end(&clocks, 0, UINT64_MAX), -EINVAL);
    assert_int_equal(table_clocks_end(&clocks, 0, UINT64_MAX - 1), -EINVAL);
    assert_int_equal(table_clocks_end(&clocks, RANKS, 1), -EINVAL);
    assert_int_equal(table_clocks_of(&clocks, 0), 1);
    end(&clocks);
}

static void ranks_behind_are_named_with_their_clocks(void **state)
{
    struct table_clocks clocks;
    struct clock_rank behind[2];
    begin(&clocks, 5, 1);
    table_clocks_end(&clocks, 1, 9);
    table_clocks_end(&clocks, 3, 2);
    table_clocks_leave(&clocks, 2);
    assert_int_equal(table_clocks_behind(&clocks, 4, behind, 2), 3);
    assert_int_equal(behind[0].rank, 0);
    assert_int_equal(behind[0].clock, 1);
    assert_int_equal(behind[1].rank, 3);
    assert_int_equal(behind[1].clock, 3);
    assert_int_equal(table_clocks_behind(&clocks, 1, behind, 2), 0);
    end(&clocks);
}

/* Compares with a simple minimum after random ends, entries and losses. */
static void the_minimum_equals_a_naive_one(void **state)
{
    struct table_clocks clocks;
    for (uint32_t world = 0; world < extent(200, 50, 20000); world++) {
        uint64_t naive[RANKS] = {0}, before = 1;
        begin(&clocks, 0, 0);
        for (int step = 0; step < 100; step++) {
            uint32_t rank = (uint32_t)random() % RANKS;
            uint64_t minimum = UINT64_MAX, clock = before + (uint64_t)random() % 4;
            int r = 0;
            if (naive[rank] == CLOCK_NONE && (r = table_clocks_enter(&clocks, rank, clock)) == 0) {
                naive[rank] = clock;
            } else if (random() % 10 == 0) {
                r = table_clocks_leave(&clocks, rank);
                naive[rank] = CLOCK_NONE;
            } else {
                r = table_clocks_end(&clocks, rank, clock);
                naive[rank] = clock + 1 > naive[rank] ? clock + 1 : naive[rank];
            }
            for (uint32_t i = 0; i < RANKS; i++)
                if (naive[i] != CLOCK_NONE && naive[i] < minimum)
                    minimum = naive[i];
            if (minimum != UINT64_MAX)
                assert_int_equal(clocks.minimum, minimum);
            assert_true(clocks.minimum >= before);
            if (r == 1)
                assert_true(clocks.minimum > before);
            before = clocks.minimum;
        }
        end(&clocks);
    }
}

static void bsp_applies_a_clock_when_all_members_have_ended_it(void **state)
{
    struct table_clocks clocks;
    struct shard_progress progress = {CLOCK_FIRST, 0};
    begin(&clocks, 2, 1);
    assert_true(table_pull_may_start(&clocks, TABLE_BSP, 0, &progress, 1));
    assert_false(table_push_may_start(&clocks, TABLE_BSP, &progress, 1));
    table_clocks_end(&clocks, 0, 1);
    assert_false(table_push_may_start(&clocks, TABLE_BSP, &progress, 1));
    table_clocks_end(&clocks, 1, 1);
    assert_true(table_push_may_start(&clocks, TABLE_BSP, &progress, 1));
    assert_false(table_pull_may_start(&clocks, TABLE_BSP, 0, &progress, 2));
    table_clocks_end(&clocks, 0, 2);
    table_clocks_end(&clocks, 1, 2);
    /* clock 1 must end first */
    assert_false(table_push_may_start(&clocks, TABLE_BSP, &progress, 2));
    shard_progress_finish(&progress);
    assert_true(table_pull_may_start(&clocks, TABLE_BSP, 0, &progress, 2));
    assert_true(table_push_may_start(&clocks, TABLE_BSP, &progress, 2));
    /* a push may start only once */
    assert_false(table_push_may_start(&clocks, TABLE_BSP, &progress, 1));
    end(&clocks);
}

static void ssp_lets_a_pull_run_ahead_by_its_staleness(void **state)
{
    struct table_clocks clocks;
    struct shard_progress progress = {CLOCK_FIRST, 0};
    begin(&clocks, 2, 1);
    assert_true(table_push_may_start(&clocks, TABLE_SSP, &progress, 9));
    assert_true(table_pull_may_start(&clocks, TABLE_SSP, 2, &progress, 3));
    assert_false(table_pull_may_start(&clocks, TABLE_SSP, 2, &progress, 4));
    table_clocks_end(&clocks, 0, 3);
    assert_false(table_pull_may_start(&clocks, TABLE_SSP, 2, &progress, 4));
    table_clocks_end(&clocks, 1, 1);
    assert_true(table_pull_may_start(&clocks, TABLE_SSP, 2, &progress, 4));
    assert_true(table_pull_may_start(&clocks, TABLE_SSP, UINT32_MAX, &progress, 1000));
    end(&clocks);
}

static void asp_waits_for_no_member(void **state)
{
    struct table_clocks clocks;
    struct shard_progress progress = {CLOCK_FIRST, 0};
    begin(&clocks, 2, 1);
    assert_true(table_push_may_start(&clocks, TABLE_ASP, &progress, 1000));
    assert_true(table_pull_may_start(&clocks, TABLE_ASP, 0, &progress, 1000));
    end(&clocks);
}

static void progress_covers_the_applied_updates(void **state)
{
    struct shard_progress progress = {3, 0};
    assert_true(shard_progress_covers(&progress, 2, UINT64_MAX));
    assert_false(shard_progress_covers(&progress, 3, 0));
    shard_progress_advance(&progress, 0);
    assert_true(shard_progress_covers(&progress, 3, 0));
    assert_false(shard_progress_covers(&progress, 3, 1));
    shard_progress_advance(&progress, 700);
    assert_true(shard_progress_covers(&progress, 3, 700));
    assert_false(shard_progress_covers(&progress, 4, 0));
    shard_progress_advance(&progress, UINT64_MAX);
    assert_int_equal(progress.clock, 4);
    assert_int_equal(progress.next, 0);
}

static void a_restarted_rank_counts_its_pushes_anew(void **state)
{
    struct rank_progress progress = {0, {1, 0}};
    assert_int_equal(rank_progress_enter(&progress, 10), 0);
    shard_progress_finish(&progress.pushes);
    assert_int_equal(rank_progress_enter(&progress, 10), 0);
    assert_true(shard_progress_covers(&progress.pushes, 1, 5));
    assert_int_equal(rank_progress_enter(&progress, 11), 0);
    assert_false(shard_progress_covers(&progress.pushes, 1, 5));
    assert_int_equal(rank_progress_enter(&progress, 10), -ESTALE);
    assert_int_equal(progress.session, 11);
}

static void clocks_without_memory_are_an_error(void **state)
{
    struct table_clocks clocks = {0};
    rig_init_memory(&memory);
    memory.left = 0;
    assert_int_equal(table_clocks_init(&clocks, &memory.allowance, RANKS, 1), -ENOMEM);
    table_clocks_fini(&clocks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_minimum_is_the_smallest_clock),
        cmocka_unit_test(a_clock_never_goes_back),
        cmocka_unit_test(a_lost_worker_frees_the_minimum),
        cmocka_unit_test(a_late_worker_holds_the_minimum),
        cmocka_unit_test(a_clock_without_a_next_one_is_refused),
        cmocka_unit_test(ranks_behind_are_named_with_their_clocks),
        cmocka_unit_test(the_minimum_equals_a_naive_one),
        cmocka_unit_test(bsp_applies_a_clock_when_all_members_have_ended_it),
        cmocka_unit_test(ssp_lets_a_pull_run_ahead_by_its_staleness),
        cmocka_unit_test(asp_waits_for_no_member),
        cmocka_unit_test(progress_covers_the_applied_updates),
        cmocka_unit_test(a_restarted_rank_counts_its_pushes_anew),
        cmocka_unit_test(clocks_without_memory_are_an_error),
    };
    return cmocka_run_group_tests(tests, rig_seed, NULL);
}
