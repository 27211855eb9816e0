/* Tests trials of fewer lanes for a job that is alone on its lanes (RULES.md of packer, G12). */
#include "test/unit/packer/scale_pool.h"

#include "packer/profile/narrow.h"

/* Makes one job with eight tasks on each of `lanes` lanes, and the trial results that its profile
 * would contain. */
static struct pool *alone(uint32_t lanes)
{
    struct pool *p = pool_new(16, 4);
    pool_open(p, lanes);
    uint32_t job = pool_job(p);
    for (uint32_t i = 0; i < 8 * lanes; i++)
        pool_task(p, job, i % lanes, MS / 10);
    p->jobs[job].workers = lanes;
    p->jobs[job].lanes_enough = lanes;
    p->jobs[job].lanes_next = lanes / 2;
    return p;
}

static uint32_t lanes_of(const struct pool *p, uint32_t job)
{
    bool has[POOL_LANES_MAX] = {0};
    uint32_t count = 0;
    for (size_t i = 0; i < p->seen.tasks_count; i++) {
        count += p->tasks[i].job == job && !has[p->tasks[i].lane];
        has[p->tasks[i].lane] |= p->tasks[i].job == job;
    }
    return count;
}

static void half_of_its_lanes_take_all_evenly(void **state)
{
    struct pool *p = alone(4);
    assert_in_range(pool_until(p, SCALE_NARROW), 6, 8); /* 30 s of low load */
    pool_expect(p, SCALE_NARROW,
                "job 100 is tried on fewer lanes: the job is alone on 4 lanes, and "
                "moves to 2");
    assert_int_equal(p->last.moves_count, 16);
    pool_obey(p);
    assert_int_equal(lanes_of(p, 0), 2);
    for (size_t i = 0; i < 4; i++)
        assert_true(pool_tasks_on(p, i) == 0 || pool_tasks_on(p, i) == 16);
    pool_free(p);
}

/* During the trial no task is added to the job's lanes, and none is removed. */
static void during_a_trial_no_task_of_the_job_moves(void **state)
{
    struct pool *p = alone(4);
    pool_open(p, 6);
    pool_put(p, 4, 2 * MS);
    pool_put(p, 5, 2 * MS);
    pool_until(p, SCALE_NARROW);
    pool_obey(p);
    for (int i = 0; i < 40; i++)
        pool_tick(p);
    assert_int_equal(p->counts[SCALE_DRAIN], 1); /* the other two jobs move to one lane */
    assert_int_equal(lanes_of(p, 0), 2);
    assert_int_equal(
        pool_residents(p, p->tasks[0].lane, (struct packer_resident[8]){0}, (uint32_t[8]){0}), 1);
    for (int i = 0; i < 100; i++)
        pool_tick(p); /* after a trial without a result, the job's lanes are ordinary lanes again */
    assert_true(p->counts[SCALE_DRAIN] > 1);
    pool_free(p);
}

static void a_job_on_too_few_lanes_gets_more_at_once(void **state)
{
    struct pool *p = alone(4);
    pool_until(p, SCALE_NARROW);
    pool_obey(p);
    while (pool_tick(p) != SCALE_PARK)
        continue;
    p->jobs[0].lanes_next = 3;
    p->jobs[0].loss_ppm = 100000;
    assert_int_equal(pool_until(p, SCALE_NARROW), 1);
    pool_expect(p, SCALE_NARROW,
                "needs more lanes than it has: the job is alone on 2 lanes, "
                "and moves to 3");
    assert_int_equal(p->last.lanes_count, 1);
    pool_obey(p);
    assert_int_equal(lanes_of(p, 0), 3);
    for (size_t i = 0; i < 4; i++)
        assert_true(pool_tasks_on(p, i) == 0 || pool_tasks_on(p, i) >= 10);
    p->jobs[0].lanes_next = 0; /* three lanes are too few as well */
    pool_until(p, SCALE_NARROW);
    pool_obey(p);
    assert_int_equal(lanes_of(p, 0), 4);
    p->jobs[0].loss_ppm = 0;
    pool_tick(p);
    assert_int_equal(p->memories[0].narrowed, 0);
    pool_free(p);
}

static void a_job_with_neighbours_or_in_a_move_is_not_tried(void **state)
{
    struct pool *p = alone(4);
    pool_put(p, 0, 15 * MS);
    for (int i = 0; i < 20; i++)
        assert_int_not_equal(pool_tick(p), SCALE_NARROW);
    pool_free(p);
    p = alone(4);
    p->jobs[0].is_moving = true;
    for (int i = 0; i < 20; i++)
        assert_int_not_equal(pool_tick(p), SCALE_NARROW);
    p->jobs[0].is_moving = false;
    p->jobs[0].lanes_enough = 0;
    for (int i = 0; i < 6; i++)
        assert_int_not_equal(pool_tick(p), SCALE_NARROW);
    pool_free(p);
}

static void a_job_that_finds_no_lane_keeps_its_lanes_and_delays_no_other(void **state)
{
    struct pool *p = alone(2);
    p->options.lanes_max = 2;
    pool_until(p, SCALE_NARROW);
    pool_obey(p);
    uint32_t left = p->tasks[0].lane == 0 ? 1 : 0, other = pool_put(p, left, 2 * MS);
    p->jobs[0].lanes_next = 0;
    for (int i = 0; i < 20; i++)
        assert_int_not_equal(pool_tick(p), SCALE_NARROW);
    p->tasks[p->seen.tasks_count - 1] = p->tasks[0]; /* the other job leaves */
    p->seen.tasks_count--;
    p->seen.jobs_count--;
    assert_int_equal(other, 1);
    assert_in_range(pool_until(p, SCALE_NARROW), 1, 24); /* trials become rare */
    pool_free(p);
}

/* Makes one lane for a job that needs two. A drain has moved the job to this lane within all
 * limits. */
static struct pool *gathered(void)
{
    struct pool *p = alone(2);
    for (size_t i = 0; i < p->seen.tasks_count; i++)
        p->tasks[i].lane = 0;
    p->jobs[0].lanes_next = 0;
    return p;
}

static void a_job_gathered_by_a_drain_stays_until_it_exceeds_its_limit(void **state)
{
    struct pool *p = gathered();
    for (int i = 0; i < 100; i++)
        assert_int_not_equal(pool_tick(p), SCALE_NARROW);
    p->jobs[0].loss_ppm = 60000;
    assert_int_equal(pool_until(p, SCALE_NARROW), 1);
    pool_obey(p);
    assert_int_equal(lanes_of(p, 0), 2);
    assert_int_equal(p->memories[0].reliefs, 1); /* the relief delays the next drain */
    pool_free(p);
}

static void the_lane_of_a_waiting_job_is_not_taken(void **state)
{
    struct pool *p = gathered();
    p->options.lanes_max = 2;
    p->jobs[0].loss_ppm = 60000;
    p->wishes[0] = (struct scale_wish){.job = 7, .lanes = 1};
    p->seen.wishes_count = 1;
    for (int i = 0; i < 50; i++)
        assert_int_equal(pool_tick(p), SCALE_NOTHING);
    pool_free(p);
}

static void an_aggregator_starts_where_no_lane_is_left(void **state)
{
    struct pool *p = gathered();
    for (size_t i = 1; i < p->seen.lanes_count; i++)
        p->lanes[i].lane.state = i < 4 ? PACKER_LANE_OPEN : PACKER_LANE_UNSTARTED;
    for (uint32_t lane = 1; lane < 4; lane++)
        pool_put(p, lane, 24 * MS);
    p->jobs[0].loss_ppm = 60000;
    assert_int_equal(pool_until(p, SCALE_START), 1);
    pool_expect(p, SCALE_START, "job 100 needs more lanes than it has, 2 for 1");
    pool_obey(p);
    assert_in_range(pool_until(p, SCALE_NARROW), 1, 12);
    pool_obey(p);
    assert_int_equal(lanes_of(p, 0), 2);
    pool_free(p);
}

/* The job has more bytes than may move at once. Its trials become rare, and other jobs have their
 * turn. */
static void a_job_that_cannot_move_delays_no_other(void **state)
{
    struct pool *p = pool_new(16, 4);
    pool_open(p, 12);
    for (uint32_t job = 0; job < 6; job++) {
        assert_int_equal(pool_job(p), job);
        for (uint32_t i = 0; i < 8; i++)
            pool_task(p, job, 2 * job + i % 2, MS / 10);
        p->jobs[job].lanes_enough = 2;
        p->jobs[job].lanes_next = 1;
    }
    for (size_t i = 0; i < 40; i++)
        p->tasks[i].bytes = UINT64_C(2) << 30;
    assert_in_range(pool_until(p, SCALE_NARROW), 6, 30);
    pool_expect(p, SCALE_NARROW, "job 105 ");
    pool_free(p);
}

/* The rounds of the job are too long for a result of the trial. For a quarter of an hour, other
 * jobs may use the lanes. */
static void a_job_without_a_verdict_is_not_tried_all_the_time(void **state)
{
    struct pool *p = alone(4);
    pool_open(p, 6);
    pool_put(p, 4, 2 * MS);
    for (int i = 0; i < 2000; i++)
        pool_tick(p);
    assert_in_range(p->counts[SCALE_NARROW], 1, 3);
    pool_free(p);
}

/* The search must find the smallest sufficient number of lanes. The case tries the numbers 1 to 8.
 * After the search no more decisions are made. */
static void the_fewest_sufficient_lanes_are_found(void **state)
{
    for (uint32_t needs = 1; needs <= 8; needs++) {
        struct pool *p = alone(8);
        struct narrow narrow;
        p->options.lanes_min = 1;
        narrow_begin(&narrow, 8);
        for (int i = 0; i < 200 && narrow_next(&narrow) > 0; i++) {
            pool_tick(p);
            uint32_t lanes = lanes_of(p, 0);
            if (p->scale.settle == 0 && lanes == narrow_next(&narrow))
                narrow_add(&narrow, 100 * MS, lanes < needs ? 150 * MS : 100 * MS, 50000);
            p->jobs[0].lanes_next = narrow_next(&narrow);
            p->jobs[0].lanes_enough = narrow.enough;
        }
        assert_int_equal(narrow.enough, needs);
        for (int i = 0; i < 3; i++)
            pool_tick(p);
        assert_int_equal(lanes_of(p, 0), needs);
        pool_free(p);
    }
}

int main(void)
{
    static const struct CMUnitTest cases[] = {
        cmocka_unit_test(half_of_its_lanes_take_all_evenly),
        cmocka_unit_test(during_a_trial_no_task_of_the_job_moves),
        cmocka_unit_test(a_job_on_too_few_lanes_gets_more_at_once),
        cmocka_unit_test(a_job_with_neighbours_or_in_a_move_is_not_tried),
        cmocka_unit_test(a_job_that_finds_no_lane_keeps_its_lanes_and_delays_no_other),
        cmocka_unit_test(a_job_gathered_by_a_drain_stays_until_it_exceeds_its_limit),
        cmocka_unit_test(the_lane_of_a_waiting_job_is_not_taken),
        cmocka_unit_test(an_aggregator_starts_where_no_lane_is_left),
        cmocka_unit_test(a_job_that_cannot_move_delays_no_other),
        cmocka_unit_test(a_job_without_a_verdict_is_not_tried_all_the_time),
        cmocka_unit_test(the_fewest_sufficient_lanes_are_found),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
