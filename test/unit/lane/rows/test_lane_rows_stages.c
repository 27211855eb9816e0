/* Tests the stages of a job on a lane. Clocks, means and settings depend only on the members of the
 * current stage. A stage begins only when all requests of the former stage have ended. */
#include "svc/lane/rows/stage/stage.h"
#include "svc/lane/rows/table.h"
#include "test/unit/lane/rows/rows_case.h"

#include "svc/lane/job/table.h"
#include "svc/wire/ranks.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* Begins a stage of the ranks in the mask. The workers of the rig then continue in the first clock
 * of the stage. */
static int begin_as(uint64_t number, uint64_t mask, uint64_t first_clock, uint32_t consistency)
{
    uint64_t ranks[RANKS_WORDS] = {mask};
    const struct lane_stage stage = {.number = number,
                                     .ranks = ranks,
                                     .first_clock = first_clock,
                                     .consistency = consistency,
                                     .staleness = consistency == TABLE_TERMS_SSP ? 1 : 0};
    int error = lane_begin_stage(rig.lanes[0].lane, RIG_JOB, &stage);
    for (uint32_t i = 0; error == 0 && i < rig.workers_count; i++)
        rig.workers[i].clock.ended = first_clock - 1;
    return error;
}

static int begin(uint64_t number, uint64_t mask, uint64_t first_clock)
{
    return begin_as(number, mask, first_clock, 0);
}

static void clocks_of_idle_ranks_do_not_count(void **state)
{
    start(3);
    assert_int_equal(begin(1, 0x6, 1), 0); /* ranks 1 and 2 */
    struct record_clock record = settings_record(0.25);
    rows_send(&rig, 0, 1, &record, sizeof record);
    push_ones(1);
    rows_clock(&rig, 1);
    struct rows_asked *pull = rows_pull(&rig, 1, keys, KEYS);
    rows_settle(&rig);
    assert_false(rows_is_done(&rig, pull));
    rows_clock(&rig, 2);
    rows_are(pull, START - 0.25f);
    rows_stop(&rig);
}

static void a_later_stage_begins_in_its_first_clock(void **state)
{
    start(2);
    push_ones(0);
    rows_clock(&rig, 0);
    rows_clock(&rig, 1);
    rows_settle(&rig);
    assert_int_equal(begin(1, 0x1, 2), 0);
    push_ones(0);
    rows_clock(&rig, 0);
    rows_settle(&rig);
    assert_int_equal(begin(2, 0x3, 3), 0);
    push_ones(1);
    rows_clock(&rig, 0);
    rows_clock(&rig, 1);
    rows_are(rows_pull(&rig, 1, keys, KEYS), START - 0.75f);
    rows_stop(&rig);
}

static void a_stage_waits_for_requests_and_clocks_of_the_former_one(void **state)
{
    start(2);
    push_ones(0);
    rows_clock(&rig, 0);
    rows_settle(&rig);
    assert_int_equal(begin(1, 0x1, 2), -EAGAIN); /* rank 1 has not ended clock 1 */
    rows_clock(&rig, 1);
    rows_settle(&rig);
    struct rows_asked *pull = rows_pull(&rig, 0, keys, KEYS);
    assert_int_equal(begin(1, 0x1, 3), -EAGAIN); /* no rank has ended clock 2 */
    rows_are(pull, START - 0.25f);
    rows_settle(&rig);
    assert_int_equal(begin(1, 0x1, 2), 0);
    rows_stop(&rig);
}

static void a_repeated_stage_changes_nothing(void **state)
{
    start(2);
    assert_int_equal(begin(1, 0x1, 1), 0);
    push_ones(0);
    rows_clock(&rig, 0);
    rows_settle(&rig);
    assert_int_equal(begin(1, 0x2, 1), 0);
    /* needed because begin() has set the clock of this worker back */
    rig.workers[0].clock.ended = 1;
    rows_are(rows_pull(&rig, 0, keys, KEYS), START - 0.25f);
    rows_stop(&rig);
}

static void wrong_stages_are_refused(void **state)
{
    const uint64_t one[RANKS_WORDS] = {1};
    start(2);
    assert_int_equal(begin(1, 0, 1), -EINVAL);
    assert_int_equal(begin(1, 0x1, 0), -EINVAL);
    assert_int_equal(begin_as(1, 0x1, 1, 4), -EINVAL);
    assert_int_equal(begin(2, 0x3, 1), 0);
    assert_int_equal(begin(1, 0x1, 1), -ESTALE);
    rows_clock(&rig, 0);
    rows_clock(&rig, 1);
    rows_settle(&rig);
    /* the clock is lower than the clocks of the members */
    assert_int_equal(begin(3, 0x1, 1), -EINVAL);
    const struct lane_stage stage = {.number = 4, .ranks = one, .first_clock = 2};
    assert_int_equal(lane_begin_stage(rig.lanes[0].lane, RIG_JOB + 1, &stage), -ENOENT);
    rows_stop(&rig);
}

static void a_table_that_inherits_has_the_consistency_of_the_stage(void **state)
{
    start(2); /* the terms `users` inherit the consistency */
    assert_int_equal(begin_as(1, 0x3, 1, TABLE_TERMS_ASP), 0);
    push_ones(0);
    /* the pull includes the rank's own push, although the rank has not ended its clock */
    rows_are(rows_pull(&rig, 0, keys, KEYS), START - 0.25f);
    rows_settle(&rig);
    rows_clock(&rig, 0);
    rows_clock(&rig, 1);
    rows_settle(&rig);
    assert_int_equal(begin_as(2, 0x3, 2, TABLE_TERMS_BSP), 0);
    push_ones(0);
    rows_are(rows_pull(&rig, 0, keys, KEYS), START - 0.25f);
    rows_clock(&rig, 0);
    rows_clock(&rig, 1);
    rows_are(rows_pull(&rig, 0, keys, KEYS), START - 0.5f);
    rows_stop(&rig);
}

/* Rank 0 has sent settings, and is now outside the stage. A later change of its settings must have
 * no effect. */
static void settings_of_an_idle_rank_do_not_count(void **state)
{
    struct record_clock idle = settings_record(8), lowest = settings_record(0.5);
    start(2);
    rows_settle(&rig);
    assert_int_equal(begin(1, 0x2, 1), 0);
    rows_send(&rig, 0, 1, &lowest, sizeof lowest);
    rows_settle(&rig);
    rows_send(&rig, 0, 0, &idle, sizeof idle);
    rows_settle(&rig);
    push_ones(1);
    rows_clock(&rig, 1);
    rows_are(rows_pull(&rig, 1, keys, KEYS), START - 0.5f);
    rows_stop(&rig);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(clocks_of_idle_ranks_do_not_count),
        cmocka_unit_test(a_later_stage_begins_in_its_first_clock),
        cmocka_unit_test(a_stage_waits_for_requests_and_clocks_of_the_former_one),
        cmocka_unit_test(a_repeated_stage_changes_nothing),
        cmocka_unit_test(wrong_stages_are_refused),
        cmocka_unit_test(a_table_that_inherits_has_the_consistency_of_the_stage),
        cmocka_unit_test(settings_of_an_idle_rank_do_not_count),
    };
    rows_set_kind(argc, argv);
    return cmocka_run_group_tests_name(rows_kind, cases, NULL, NULL);
}
