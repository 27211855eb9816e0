/* Tests each rule by which the pool shrinks, and the limits of these rules (RULES.md of packer, G3,
 * G5 to G7, G9). */
#include "test/unit/packer/scale_pool.h"

/* --- a lane whose tasks fit elsewhere --- */

static void a_low_load_that_lasts_empties_the_lane_of_least_load(void **state)
{
    struct pool *p = pool_sparse();
    assert_int_equal(pool_until(p, SCALE_DRAIN), 7); /* the 30 s start with the first window */
    pool_expect(p, SCALE_DRAIN,
                "lane 13 is emptied: for 30 s the load of 3 lanes was low, 0.35 now");
    assert_int_equal(p->last.moves_count, 1);
    pool_obey(p);
    assert_int_equal(pool_until(p, SCALE_PARK), 3); /* after 10 s */
    assert_int_equal(p->last.lanes[0], 13);
    pool_free(p);
}

static void a_second_drain_waits_until_measurements_show_the_first(void **state)
{
    struct pool *p = pool_sparse();
    p->tasks[2].lane_ns = 8 * MS;
    assert_int_equal(pool_until(p, SCALE_DRAIN), 7);
    pool_obey(p);
    p->options.park_hold_ns = 1000 * S;
    assert_int_equal(pool_until(p, SCALE_DRAIN), SCALE_SETTLE_WINDOWS);
    pool_obey(p);
    for (int i = 0; i < 100; i++)
        assert_int_equal(pool_tick(p), SCALE_NOTHING);
    pool_free(p);
}

static void a_window_of_high_load_restarts_the_wait(void **state)
{
    struct pool *p = pool_sparse();
    for (int i = 0; i < 100; i++) {
        p->lanes[0].lane.load_ppm = i % 6 == 5 ? 2 * 700000 : 0;
        assert_int_equal(pool_tick(p), SCALE_NOTHING);
    }
    pool_free(p);
}

static void a_lane_whose_tasks_fit_nowhere_is_not_drained(void **state)
{
    struct pool *p = pool_new(8, 1);
    pool_open(p, 3);
    for (uint32_t i = 0; i < 3; i++)
        /* if two of these jobs shared a lane, each would lose 8 %, although the lane would be only
         * 60 % busy */
        pool_put(p, i, 30 * MS);
    for (int i = 0; i < 200; i++)
        assert_int_equal(pool_tick(p), SCALE_NOTHING);
    pool_free(p);
}

static void a_drain_requires_a_larger_margin_than_a_placement(void **state)
{
    struct pool *p = pool_new(8, 1);
    pool_open(p, 2);
    pool_put(p, 0, 20 * MS); /* each job loses 3.8 %, or 4.8 % with the margin of `shared` */
    pool_put(p, 1, 20 * MS);
    for (int i = 0; i < 200; i++)
        assert_int_equal(pool_tick(p), SCALE_NOTHING);
    p->tasks[0].lane_ns = 14 * MS; /* each job loses 2.7 % */
    pool_until(p, SCALE_DRAIN);
    pool_obey(p);
    pool_free(p);
}

static void all_tasks_of_a_lane_leave_or_none(void **state)
{
    struct pool *p = pool_sparse();
    pool_put(p, 1, 3 * MS);
    uint32_t big = pool_put(p, 1, MS);
    p->jobs[big].timing.loss_limit_ppm = 10000; /* the job needs a separate lane */
    p->tasks[1].lane_ns = 0;
    for (int i = 0; i < 50 && p->counts[SCALE_DRAIN] == 0; i++)
        pool_tick(p);
    assert_int_equal(p->counts[SCALE_DRAIN], 1);
    assert_int_equal(pool_tasks_on(p, 1), 3);
    pool_free(p);
}

static void lanes_with_jobs_that_cannot_be_planned_for_stay(void **state)
{
    struct pool *p = pool_sparse();
    p->jobs[0].timing.period_ns = 0;
    p->jobs[1].is_moving = true;
    p->jobs[2].memory->reliefs = 1;
    for (uint32_t i = 0; i < 2 * SCALE_WITHIN_WINDOWS - 1; i++)
        assert_int_equal(pool_tick(p), SCALE_NOTHING);
    p->jobs[1].is_moving = false;
    assert_in_range(pool_until(p, SCALE_DRAIN), 1, 7);
    /* lane 10 is the lane of the job without a measurement */
    assert_int_not_equal(p->last.lane, 10);
    pool_free(p);
}

static void a_drain_waits_until_nothing_changes(void **state)
{
    struct pool *p = pool_sparse();
    p->lanes[3].is_changing = true;
    for (int i = 0; i < 20; i++)
        assert_int_equal(pool_look(p), SCALE_NOTHING);
    p->lanes[3].is_changing = false;
    assert_int_equal(pool_look(p), SCALE_DRAIN);
    pool_free(p);
}

static void a_drain_that_moves_too_much_is_left(void **state)
{
    struct pool *p = pool_sparse();
    for (int i = 0; i < 3; i++)
        p->tasks[i].bytes = 2000;
    p->options.drain_bytes_max = 1999;
    for (int i = 0; i < 20; i++)
        assert_int_equal(pool_tick(p), SCALE_NOTHING);
    p->options.drain_bytes_max = 2000;
    pool_until(p, SCALE_DRAIN);
    pool_free(p);
}

static void memory_bounds_a_drain(void **state)
{
    struct pool *p = pool_sparse();
    for (int i = 0; i < 3; i++)
        p->lanes[i].lane.memory_bytes = 999;
    for (int i = 0; i < 20; i++)
        assert_int_equal(pool_tick(p), SCALE_NOTHING);
    p->lanes[2].lane.memory_bytes = 1000;
    pool_until(p, SCALE_DRAIN);
    assert_int_equal(p->last.moves[0].target, 16);
    pool_free(p);
}

static void memory_used_by_one_job_is_not_offered_to_the_next(void **state)
{
    struct pool *p = pool_new(8, 1);
    pool_open(p, 2);
    pool_put(p, 0, 30 * MS);
    pool_put(p, 1, MS);
    pool_put(p, 1, MS);
    p->lanes[0].lane.memory_bytes = 1999;
    p->lanes[1].lane.memory_bytes = 0;
    for (int i = 0; i < 20; i++)
        assert_int_equal(pool_tick(p), SCALE_NOTHING);
    p->lanes[0].lane.memory_bytes = 2000;
    p->lanes[0].lane.nic_bytes_per_s = 1000000;
    p->tasks[1].wire_bytes = p->tasks[2].wire_bytes = 100000; /* ten rounds a second */
    for (int i = 0; i < 20; i++)
        assert_int_equal(pool_tick(p), SCALE_NOTHING);
    p->lanes[0].lane.nic_bytes_per_s = 2000000;
    pool_until(p, SCALE_DRAIN);
    assert_int_equal(p->last.moves_count, 2);
    pool_free(p);
}

static void the_minimum_number_of_lanes_is_not_drained(void **state)
{
    struct pool *p = pool_sparse();
    p->options.lanes_min = 3;
    for (int i = 0; i < 100; i++)
        assert_int_equal(pool_tick(p), SCALE_NOTHING);
    pool_free(p);
}

/* --- unused lanes and aggregators --- */

static void the_last_of_the_lanes_without_a_job_park(void **state)
{
    struct pool *p = pool_new(8, 2);
    pool_open(p, 5);
    pool_put(p, 3, 30 * MS);
    assert_int_equal(pool_until(p, SCALE_PARK), 3);
    assert_int_equal(p->last.lanes_count, 4);
    assert_int_equal(p->last.lanes[0], 10);
    assert_int_equal(p->last.lanes[3], 22);
    pool_obey(p);
    assert_int_equal(pool_tick(p), SCALE_NOTHING);
    pool_free(p);
}

static void only_as_many_lanes_park_as_were_idle_all_the_time(void **state)
{
    struct pool *p = pool_new(8, 2);
    pool_open(p, 5);
    pool_put(p, 0, 30 * MS);
    assert_int_equal(pool_look(p), SCALE_NOTHING);
    for (uint32_t i = 1; i < 4; i++)
        pool_put(p, i, 30 * MS);
    assert_int_equal(pool_look(p), SCALE_NOTHING);
    p->seen.tasks_count = 1;
    assert_int_equal(pool_look(p), SCALE_PARK);
    assert_int_equal(p->last.lanes_count, 1);
    pool_free(p);
}

static void an_aggregator_without_open_lanes_stops_in_the_end(void **state)
{
    struct pool *p = pool_new(12, 3);
    pool_open(p, 1);
    assert_int_equal(pool_until(p, SCALE_STOP), 61);
    assert_int_equal(p->last.aggregator, 3);
    pool_obey(p);
    assert_int_equal(pool_until(p, SCALE_STOP), 61);
    assert_int_equal(p->last.aggregator, 2);
    pool_obey(p);
    for (int i = 0; i < 200; i++)
        assert_int_equal(pool_tick(p), SCALE_NOTHING);
    pool_free(p);
}

static void an_aggregator_with_a_lane_that_changes_does_not_stop(void **state)
{
    struct pool *p = pool_new(8, 2);
    pool_open(p, 1);
    p->lanes[7].is_changing = true;
    for (int i = 0; i < 100; i++)
        assert_int_equal(pool_look(p), SCALE_NOTHING);
    pool_free(p);
}

static void an_aggregator_started_by_others_is_not_stopped(void **state)
{
    struct pool *p = pool_new(8, 2);
    pool_open(p, 1);
    p->lanes[7].is_kept = true;
    for (int i = 0; i < 100; i++)
        assert_int_equal(pool_look(p), SCALE_NOTHING);
    pool_free(p);
}

static void the_memory_of_a_node_bounds_a_drain(void **state)
{
    struct pool *p = pool_sparse();
    struct packer_node nodes[] = {{999, UINT64_MAX}, {0, UINT64_MAX}};
    p->seen.nodes = nodes;
    p->seen.nodes_count = 2;
    pool_put(p, 1, MS);
    p->lanes[2].lane.node = 1;
    p->tasks[2].lane_ns = 20 * MS;
    for (int i = 0; i < 20; i++)
        assert_int_equal(pool_tick(p), SCALE_NOTHING);
    nodes[0].memory_bytes = 1000; /* too small for the two tasks of the lane with the least load */
    pool_until(p, SCALE_DRAIN);
    assert_int_equal(p->last.lane, 10);
    assert_int_equal(p->last.moves[0].target, 13);
    pool_free(p);
}

/* A job of two workers may have at most eight lanes. */
static void a_job_stays_within_the_most_lanes_that_it_may_have(void **state)
{
    struct pool *p = pool_new(12, 3);
    pool_open(p, 12);
    for (uint32_t i = 0; i < 12; i++)
        p->jobs[pool_put(p, i, (i < 8 ? 30 : 6) * MS)].timing.loss_limit_ppm = 80000;
    uint32_t job = pool_job(p);
    for (uint32_t i = 0; i < 8; i++)
        pool_task(p, job, i, MS / 10);
    p->options.park_hold_ns = UINT64_MAX;
    for (int i = 0; i < 300; i++)
        pool_tick(p);
    bool has[12] = {false};
    size_t count = 0;
    for (size_t i = 0; i < p->seen.tasks_count; i++)
        has[p->tasks[i].lane] = has[p->tasks[i].lane] || p->tasks[i].job == job;
    for (size_t i = 0; i < 12; i++)
        count += has[i];
    assert_true(p->counts[SCALE_DRAIN] > 0);
    assert_in_range(count, 1, 8);
    pool_free(p);
}

int main(void)
{
    static const struct CMUnitTest cases[] = {
        cmocka_unit_test(a_low_load_that_lasts_empties_the_lane_of_least_load),
        cmocka_unit_test(a_second_drain_waits_until_measurements_show_the_first),
        cmocka_unit_test(a_window_of_high_load_restarts_the_wait),
        cmocka_unit_test(a_lane_whose_tasks_fit_nowhere_is_not_drained),
        cmocka_unit_test(a_drain_requires_a_larger_margin_than_a_placement),
        cmocka_unit_test(all_tasks_of_a_lane_leave_or_none),
        cmocka_unit_test(lanes_with_jobs_that_cannot_be_planned_for_stay),
        cmocka_unit_test(a_drain_waits_until_nothing_changes),
        cmocka_unit_test(a_drain_that_moves_too_much_is_left),
        cmocka_unit_test(memory_bounds_a_drain),
        cmocka_unit_test(memory_used_by_one_job_is_not_offered_to_the_next),
        cmocka_unit_test(the_minimum_number_of_lanes_is_not_drained),
        cmocka_unit_test(the_last_of_the_lanes_without_a_job_park),
        cmocka_unit_test(only_as_many_lanes_park_as_were_idle_all_the_time),
        cmocka_unit_test(an_aggregator_without_open_lanes_stops_in_the_end),
        cmocka_unit_test(an_aggregator_with_a_lane_that_changes_does_not_stop),
        cmocka_unit_test(an_aggregator_started_by_others_is_not_stopped),
        cmocka_unit_test(the_memory_of_a_node_bounds_a_drain),
        cmocka_unit_test(a_job_stays_within_the_most_lanes_that_it_may_have),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
