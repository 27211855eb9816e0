/* Tests that a job never measured alone gets its own lanes (RULES.md of packer, G11). */
#include "test/unit/packer/scale_pool.h"

/* Makes jobs that started together on one lane. All of them fit on this lane. */
static struct pool *together(uint32_t jobs)
{
    struct pool *p = pool_new(8, 1);
    pool_open(p, 1);
    for (uint32_t i = 0; i < jobs; i++) {
        uint32_t job = pool_put(p, 0, 2 * MS);
        p->jobs[job].wants_alone = true;
    }
    return p;
}

static void a_sharing_job_never_measured_alone_gets_a_lane_without_a_job(void **state)
{
    struct pool *p = together(2);
    assert_int_equal(pool_until(p, SCALE_MEASURE), 3);
    pool_expect(p, SCALE_MEASURE, "job 100 was never measured without other jobs");
    assert_int_equal(p->last.lanes_count, 1);
    pool_obey(p);
    assert_int_equal(p->tasks[0].lane, 1);
    pool_free(p);
}

static void tasks_on_shared_lanes_move_and_tasks_on_own_lanes_stay(void **state)
{
    struct pool *p = together(2);
    pool_open(p, 3);
    pool_task(p, 0, 1, 2 * MS);
    pool_task(p, 0, 2, 2 * MS);
    pool_put(p, 2, 2 * MS);
    p->jobs[1].wants_alone = false;
    assert_int_equal(pool_until(p, SCALE_MEASURE), 3);
    assert_int_equal(p->last.moves_count, 2);
    pool_obey(p);
    assert_int_equal(p->tasks[2].lane, 1);
    pool_free(p);
}

/* One job is measured and moved back by a drain. Then the next job is measured. After the last job
 * no more decisions are made. */
static void jobs_are_measured_in_turn_and_return(void **state)
{
    struct pool *p = together(4);
    p->options.lanes_max = 2;
    for (size_t i = 0; i < 400; i++) {
        pool_tick(p);
        for (uint32_t job = 0; job < 4; job++)
            if (p->memories[job].alone >= 4)
                p->jobs[job].wants_alone = false;
    }
    for (uint32_t job = 0; job < 4; job++)
        assert_false(p->jobs[job].wants_alone);
    assert_int_equal(p->counts[SCALE_MEASURE], 4);
    assert_int_equal(p->counts[SCALE_DRAIN], 4);
    assert_int_equal(pool_count(p, PACKER_LANE_OPEN), 1);
    size_t changes = p->counts[SCALE_DRAIN] + p->counts[SCALE_MEASURE];
    for (size_t i = 0; i < 400; i++)
        assert_int_equal(pool_tick(p), SCALE_NOTHING);
    assert_int_equal(p->counts[SCALE_DRAIN] + p->counts[SCALE_MEASURE], changes);
    pool_free(p);
}

static void an_operator_s_order_prevents_a_measurement_alone(void **state)
{
    struct pool *p = together(2);
    p->jobs[0].is_ordered = p->jobs[1].is_ordered = true;
    for (size_t i = 0; i < 20; i++)
        assert_int_equal(pool_tick(p), SCALE_NOTHING);
    p->jobs[1].is_ordered = false;
    pool_until(p, SCALE_MEASURE);
    assert_int_equal(p->last.job, p->jobs[1].id);
    pool_free(p);
}

static void a_job_stays_where_no_lane_is_free(void **state)
{
    struct pool *p = together(2);
    p->options.lanes_max = 1;
    for (size_t i = 0; i < 300; i++)
        assert_int_equal(pool_tick(p), SCALE_NOTHING);
    pool_free(p);
}

static void an_aggregator_starts_for_the_job_where_none_has_a_free_lane(void **state)
{
    struct pool *p = together(2);
    for (uint32_t lane = 1; lane < 4; lane++) {
        pool_put(p, lane, 40 * MS);
        p->lanes[lane].lane.state = PACKER_LANE_OPEN;
    }
    assert_int_equal(pool_until(p, SCALE_START), 3);
    assert_int_equal(p->last.aggregator, 2);
    pool_obey(p);
    assert_in_range(pool_until(p, SCALE_MEASURE), 1, 6);
    pool_obey(p);
    /* of several equal jobs, a job that has not moved yet is next */
    assert_int_equal(p->tasks[1].lane, 4);
    pool_free(p);
}

/* The job trains very slowly or pauses. Its lane must not stay reserved forever. */
static void a_job_that_stays_unmeasured_is_tried_more_and_more_rarely(void **state)
{
    struct pool *p = together(2);
    p->jobs[1].wants_alone = false;
    for (size_t i = 0; i < 3000; i++)
        pool_tick(p);
    assert_in_range(p->counts[SCALE_MEASURE], 3, 20);
    assert_in_range(p->counts[SCALE_DRAIN], 2, 20);
    pool_free(p);
}

static void a_job_that_waits_for_a_lane_is_first(void **state)
{
    struct pool *p = together(2);
    pool_open(p, 2);
    p->options.lanes_max = 2;
    p->wishes[0] = (struct scale_wish){.job = 7, .lanes = 2};
    p->seen.wishes_count = 1;
    for (size_t i = 0; i < 50; i++)
        assert_int_equal(pool_tick(p), SCALE_NOTHING);
    pool_free(p);
}

int main(void)
{
    static const struct CMUnitTest cases[] = {
        cmocka_unit_test(a_sharing_job_never_measured_alone_gets_a_lane_without_a_job),
        cmocka_unit_test(tasks_on_shared_lanes_move_and_tasks_on_own_lanes_stay),
        cmocka_unit_test(jobs_are_measured_in_turn_and_return),
        cmocka_unit_test(an_operator_s_order_prevents_a_measurement_alone),
        cmocka_unit_test(a_job_stays_where_no_lane_is_free),
        cmocka_unit_test(an_aggregator_starts_for_the_job_where_none_has_a_free_lane),
        cmocka_unit_test(a_job_that_stays_unmeasured_is_tried_more_and_more_rarely),
        cmocka_unit_test(a_job_that_waits_for_a_lane_is_first),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
