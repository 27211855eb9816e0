/* Tests each rule by which the pool grows, and the limits of these rules. Also tests leaps of the
 * clock and inconsistent input (RULES.md of packer, G1 to G4, G7, G8, G10). */
#include "test/unit/packer/scale_pool.h"

static void wish(struct pool *p, uint32_t lanes)
{
    p->wishes[p->seen.wishes_count++] = (struct scale_wish){900, lanes};
}

/* --- lanes for waiting jobs --- */

static void a_pool_without_jobs_keeps_one_lane_open(void **state)
{
    struct pool *p = pool_new(4, 1);
    assert_int_equal(pool_tick(p), SCALE_OPEN);
    assert_int_equal(p->last.lanes_count, 1);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(pool_tick(p), SCALE_NOTHING);
    assert_int_equal(pool_count(p, PACKER_LANE_OPEN), 1);
    pool_free(p);
}

static void without_a_running_aggregator_one_starts(void **state)
{
    struct pool *p = pool_new(8, 0);
    assert_int_equal(pool_tick(p), SCALE_START);
    assert_int_equal(p->last.aggregator, 1);
    assert_int_equal(p->last.lanes_count, 1);
    assert_int_equal(pool_count(p, PACKER_LANE_PARKED), 3);
    pool_free(p);
}

static void a_waiting_job_gets_lanes_in_the_same_window(void **state)
{
    struct pool *p = pool_new(12, 1);
    pool_open(p, 2);
    pool_put(p, 0, 30 * MS);
    wish(p, 4);
    pool_tick(p);
    pool_expect(p, SCALE_OPEN, "waiting: job 900; lanes needed in all: 4");
    /* two parked lanes open, because a third lane has no job */
    assert_int_equal(p->last.lanes_count, 2);
    pool_tick(p);
    pool_expect(p, SCALE_START, "an aggregator starts, lanes to open: 1;");
    assert_int_equal(p->last.aggregator, 2);
    assert_int_equal(pool_tick(p), SCALE_NOTHING);
    pool_free(p);
}

static void lanes_that_are_opening_are_not_opened_again(void **state)
{
    struct pool *p = pool_new(8, 1);
    pool_open(p, 1);
    pool_put(p, 0, 30 * MS);
    wish(p, 2);
    assert_int_equal(pool_look(p), SCALE_OPEN);
    p->lanes[1].is_changing = p->lanes[2].is_changing = true;
    for (int i = 0; i < 100; i++)
        assert_int_equal(pool_look(p), SCALE_NOTHING);
    p->lanes[2].is_changing = false; /* opening the lane failed */
    assert_int_equal(pool_look(p), SCALE_OPEN);
    assert_int_equal(p->last.lanes_count, 1);
    pool_free(p);
}

static void no_more_lanes_open_than_are_granted(void **state)
{
    struct pool *p = pool_new(8, 2);
    p->options.lanes_max = 3;
    pool_open(p, 2);
    pool_put(p, 0, 30 * MS);
    wish(p, UINT32_MAX);
    wish(p, UINT32_MAX);
    assert_int_equal(pool_tick(p), SCALE_OPEN);
    assert_int_equal(pool_count(p, PACKER_LANE_OPEN), 3);
    pool_tick(p);
    pool_expect(p, SCALE_NOTHING, "but 3 are open, which is the maximum number");
    pool_free(p);
}

static void a_spare_lane_stays_without_a_job(void **state)
{
    struct pool *p = pool_new(4, 1);
    p->options.lanes_spare = 1;
    pool_open(p, 1);
    assert_int_equal(pool_tick(p), SCALE_NOTHING);
    p->jobs[pool_put(p, 0, 0)].timing.period_ns = 0;
    assert_int_equal(pool_tick(p), SCALE_OPEN);
    for (int i = 0; i < 100; i++)
        assert_int_equal(pool_tick(p), SCALE_NOTHING);
    assert_int_equal(pool_count(p, PACKER_LANE_OPEN), 2);
    pool_free(p);
}

/* --- a job that loses too much --- */

static struct pool *crowded(void)
{
    struct pool *p = pool_new(8, 1);
    pool_open(p, 1);
    for (int i = 0; i < 3; i++)
        pool_put(p, 0, 40 * MS);
    p->jobs[1].loss_ppm = 80000;
    return p;
}

static void a_job_above_its_limit_in_three_consecutive_windows_is_relieved(void **state)
{
    struct pool *p = crowded();
    assert_int_equal(pool_tick(p), SCALE_NOTHING);
    assert_int_equal(pool_tick(p), SCALE_NOTHING);
    pool_tick(p);
    pool_expect(p, SCALE_RELIEVE,
                "job 101 has lost more than its limit in 3 windows in a row: "
                "loss 8.0 %, limit 5.0 %");
    assert_int_equal(p->last.lane, 10);
    assert_int_equal(p->last.lanes_count, 1);
    assert_int_equal(p->tasks[1].lane, 1);
    pool_free(p);
}

static void one_window_within_the_limit_counts_from_the_beginning(void **state)
{
    struct pool *p = crowded();
    for (int i = 0; i < 30; i++) {
        p->jobs[1].loss_ppm = i % 3 == 2 ? 50000 : 50001;
        assert_int_equal(pool_tick(p), SCALE_NOTHING);
    }
    pool_free(p);
}

static void the_limit_of_the_job_itself_counts(void **state)
{
    struct pool *p = crowded();
    p->jobs[1].timing.loss_limit_ppm = 80000;
    for (int i = 0; i < 10; i++)
        assert_int_equal(pool_tick(p), SCALE_NOTHING);
    p->jobs[1].loss_ppm++;
    assert_int_equal(pool_until(p, SCALE_RELIEVE), 3);
    pool_free(p);
}

static void the_loss_of_a_job_alone_is_its_own(void **state)
{
    struct pool *p = pool_new(8, 1);
    pool_open(p, 2);
    pool_put(p, 0, 40 * MS);
    pool_put(p, 1, 60 * MS);
    p->jobs[0].loss_ppm = 300000;
    for (int i = 0; i < 100; i++)
        assert_int_equal(pool_tick(p), SCALE_NOTHING);
    pool_free(p);
}

static void a_loss_that_sharing_does_not_explain_moves_no_job(void **state)
{
    struct pool *p = pool_new(8, 1);
    pool_open(p, 1);
    for (int i = 0; i < 3; i++)
        pool_put(p, 0, 2 * MS); /* the predicted loss is far below one percentage point */
    p->jobs[1].loss_ppm = 430000;
    for (int i = 0; i < 100; i++)
        assert_int_equal(pool_tick(p), SCALE_NOTHING);
    assert_int_equal(p->memories[1].stay, SCALE_STAY_UNEXPLAINED);
    assert_in_range(p->memories[1].explained_ppm, 1, 10000);
    p->jobs[1].loss_ppm = 0;
    assert_int_equal(pool_tick(p), SCALE_NOTHING);
    assert_int_equal(p->memories[1].stay, SCALE_STAY_NOT);
    pool_free(p);
}

static void a_job_that_stays_without_a_free_lane_is_reported(void **state)
{
    struct pool *p = crowded();
    p->options.lanes_max = 1;
    for (int i = 0; i < 10; i++)
        assert_int_equal(pool_tick(p), SCALE_NOTHING);
    assert_int_equal(p->memories[1].stay, SCALE_STAY_NO_LANE);
    assert_int_equal(p->memories[0].stay, SCALE_STAY_NOT);
    pool_free(p);
}

static void relief_starts_an_aggregator_where_no_lane_will_do(void **state)
{
    struct pool *p = crowded();
    pool_open(p, 4);
    for (uint32_t i = 1; i < 4; i++)
        pool_put(p, i, 80 * MS);
    assert_int_equal(pool_until(p, SCALE_START), 3);
    pool_expect(p, SCALE_START, "needs another aggregator");
    assert_int_equal(p->last.aggregator, 2);
    pool_obey(p);
    assert_int_equal(pool_until(p, SCALE_RELIEVE), 3);
    pool_obey(p);
    assert_int_equal(p->tasks[1].lane, 4);
    pool_free(p);
}

/* Without the limit, a job near its limit would start and stop an aggregator repeatedly. */
static void a_job_above_its_limit_now_and_then_starts_few_aggregators(void **state)
{
    struct pool *p = crowded();
    pool_open(p, 4);
    for (uint32_t i = 1; i < 4; i++)
        pool_put(p, i, 80 * MS);
    for (int i = 0; i < 10000; i++) {
        p->jobs[1].loss_ppm = i % 100 < 4 ? 50001 : 49000;
        pool_tick(p);
    }
    assert_int_equal(p->counts[SCALE_START], 1);
    assert_int_equal(p->counts[SCALE_STOP], 1);
    pool_free(p);
}

static void relief_waits_for_lanes_that_are_opening(void **state)
{
    struct pool *p = crowded();
    p->lanes[3].is_changing = true;
    for (int i = 0; i < 10; i++)
        assert_int_equal(pool_look(p), SCALE_NOTHING);
    p->lanes[3].is_changing = false;
    assert_int_equal(pool_look(p), SCALE_RELIEVE);
    pool_free(p);
}

static void no_job_is_relieved_of_a_lane_that_is_being_drained(void **state)
{
    struct pool *p = crowded();
    p->lanes[0].is_changing = true;
    p->options.lanes_spare = 1;
    pool_open(p, 2);
    for (int i = 0; i < 10; i++)
        assert_int_equal(pool_look(p), SCALE_NOTHING);
    p->lanes[0].is_changing = false;
    assert_int_equal(pool_until(p, SCALE_RELIEVE), 2);
    pool_free(p);
}

static void no_job_is_relieved_while_it_moves(void **state)
{
    struct pool *p = crowded();
    p->jobs[1].is_moving = true;
    for (int i = 0; i < 10; i++)
        assert_int_equal(pool_tick(p), SCALE_NOTHING);
    p->jobs[1].is_moving = false;
    assert_int_equal(pool_until(p, SCALE_RELIEVE), 3);
    pool_free(p);
}

static void an_operator_s_order_holds_against_relief_and_drains(void **state)
{
    struct pool *p = crowded();
    p->jobs[1].is_ordered = true;
    for (int i = 0; i < 20; i++)
        assert_int_equal(pool_tick(p), SCALE_NOTHING);
    p->jobs[1].is_ordered = false;
    assert_int_equal(pool_until(p, SCALE_RELIEVE), 1);
    pool_free(p);
    p = pool_sparse();
    for (int i = 0; i < 3; i++)
        p->jobs[i].is_ordered = true;
    for (int i = 0; i < 100; i++)
        assert_int_equal(pool_tick(p), SCALE_NOTHING);
    for (int i = 0; i < 3; i++)
        p->jobs[i].is_ordered = false;
    pool_until(p, SCALE_DRAIN);
    pool_free(p);
}

static void a_job_that_relief_has_not_helped_waits_for_the_others(void **state)
{
    struct pool *p = crowded();
    p->jobs[1].memory->reliefs = 1;
    p->jobs[1].memory->over = 10;
    p->jobs[2].loss_ppm = 60000;
    assert_int_equal(pool_until(p, SCALE_RELIEVE), 1);
    assert_int_equal(p->last.job, 101);
    pool_free(p);
    p = crowded();
    p->jobs[1].memory->reliefs = 1;
    p->jobs[2].loss_ppm = 60000;
    p->jobs[1].memory->over = p->jobs[2].memory->over = 10;
    assert_int_equal(pool_until(p, SCALE_RELIEVE), 1);
    assert_int_equal(p->last.job, 102);
    pool_free(p);
}

static void the_furthest_above_its_limit_is_relieved_first(void **state)
{
    struct pool *p = crowded();
    p->jobs[0].loss_ppm = 79999;
    p->jobs[2].loss_ppm = 90000;
    p->jobs[2].timing.loss_limit_ppm = 60000; /* both jobs exceed their limits by the same amount,
                                               * so the first job is relieved */
    assert_int_equal(pool_until(p, SCALE_RELIEVE), 3);
    assert_int_equal(p->last.job, 101);
    pool_obey(p);
    /* the counts of the other jobs have restarted */
    assert_int_equal(pool_until(p, SCALE_RELIEVE), 3);
    assert_int_equal(p->last.job, 102);
    pool_free(p);
}

static void relief_that_does_not_help_comes_ever_more_seldom(void **state)
{
    struct pool *p = pool_new(16, 4);
    pool_open(p, 8);
    for (uint32_t i = 0; i < 8; i++)
        pool_put(p, i, 20 * MS);
    pool_task(p, 0, 1, 20 * MS); /* a task on each lane, so that every lane has other jobs */
    p->options.lanes_max = 8;
    size_t reliefs = 0;
    for (int i = 0; i < 2000; i++) {
        p->jobs[0].loss_ppm = 90000;
        reliefs += pool_tick(p) == SCALE_RELIEVE;
    }
    assert_in_range(reliefs, 1, 16);
    pool_free(p);
}

/* --- time, and inconsistent input --- */

static void a_leap_of_the_clock_does_not_end_a_hold_time(void **state)
{
    struct pool *p = pool_sparse();
    pool_look(p);
    p->now_ns += 1000000 * S;
    assert_int_equal(pool_look(p), SCALE_NOTHING); /* 10 of the 30 s have passed */
    p->now_ns -= 500000 * S;
    assert_int_equal(pool_look(p), SCALE_NOTHING); /* a clock that goes back adds no time */
    p->now_ns = UINT64_MAX - WINDOW_NS;
    assert_int_equal(pool_look(p), SCALE_NOTHING); /* 20 of the 30 s have passed */
    p->now_ns = 0;
    assert_int_equal(pool_look(p), SCALE_NOTHING);
    assert_int_equal(pool_look(p), SCALE_NOTHING); /* 25 of the 30 s have passed */
    assert_int_equal(pool_look(p), SCALE_DRAIN);
    pool_free(p);
}

static void a_stopped_clock_does_not_end_a_hold_time(void **state)
{
    struct pool *p = pool_sparse();
    for (int i = 0; i < 100; i++) {
        p->now_ns = 5 * S;
        assert_int_equal(pool_look(p), SCALE_NOTHING);
    }
    pool_free(p);
}

static void equal_inputs_give_equal_decisions(void **state)
{
    struct pool *p = pool_sparse(), *q = pool_sparse();
    for (int i = 0; i < 100; i++) {
        assert_int_equal(pool_tick(p), pool_tick(q));
        assert_string_equal(p->last.reason, q->last.reason);
        assert_int_equal(p->last.moves_count, q->last.moves_count);
        for (size_t j = 0; j < p->last.moves_count; j++)
            assert_memory_equal(&p->last.moves[j], &q->last.moves[j], sizeof *p->last.moves);
        assert_memory_equal(p->tasks, q->tasks, sizeof p->tasks);
    }
    pool_free(p);
    pool_free(q);
}

static void expect_nonsense(struct pool *p)
{
    struct scale before = p->scale;
    struct scale_decision d = {.verb = SCALE_STOP, .aggregator = 4711};
    assert_int_equal(scale_tick(&p->scale, &p->options, &p->seen, p->now_ns + S, &d), -EINVAL);
    assert_int_equal(d.aggregator, 4711);
    assert_memory_equal(&before, &p->scale, sizeof before);
}

static void inconsistent_input_is_refused_and_changes_nothing(void **state)
{
    struct pool *p = pool_sparse();
    pool_look(p);
    p->tasks[0].lane = 8;
    expect_nonsense(p);
    p->tasks[0].lane = 5; /* this lane is not open */
    expect_nonsense(p);
    p->tasks[0].lane = 0;
    p->tasks[0].job = 3;
    expect_nonsense(p);
    p->tasks[0].job = 0;
    p->lanes[1].lane.id = 10;
    expect_nonsense(p);
    p->lanes[1].lane.id = 13;
    p->jobs[2].timing.period_ns = PACKER_PERIOD_NS_MAX + 1;
    expect_nonsense(p);
    p->jobs[2].timing.period_ns = 100 * MS;
    p->options.policy = "least-loaded";
    expect_nonsense(p);
    p->options.policy = "rate";
    pool_look(p);
    pool_free(p);
}

static void a_pool_without_lanes_makes_no_decision(void **state)
{
    struct pool *p = pool_new(0, 0);
    for (int i = 0; i < 100; i++)
        assert_int_equal(pool_tick(p), SCALE_NOTHING);
    pool_free(p);
}

int main(void)
{
    static const struct CMUnitTest cases[] = {
        cmocka_unit_test(a_pool_without_jobs_keeps_one_lane_open),
        cmocka_unit_test(without_a_running_aggregator_one_starts),
        cmocka_unit_test(a_waiting_job_gets_lanes_in_the_same_window),
        cmocka_unit_test(lanes_that_are_opening_are_not_opened_again),
        cmocka_unit_test(no_more_lanes_open_than_are_granted),
        cmocka_unit_test(a_spare_lane_stays_without_a_job),
        cmocka_unit_test(a_job_above_its_limit_in_three_consecutive_windows_is_relieved),
        cmocka_unit_test(one_window_within_the_limit_counts_from_the_beginning),
        cmocka_unit_test(the_limit_of_the_job_itself_counts),
        cmocka_unit_test(the_loss_of_a_job_alone_is_its_own),
        cmocka_unit_test(a_loss_that_sharing_does_not_explain_moves_no_job),
        cmocka_unit_test(relief_starts_an_aggregator_where_no_lane_will_do),
        cmocka_unit_test(a_job_above_its_limit_now_and_then_starts_few_aggregators),
        cmocka_unit_test(relief_waits_for_lanes_that_are_opening),
        cmocka_unit_test(a_job_that_stays_without_a_free_lane_is_reported),
        cmocka_unit_test(no_job_is_relieved_of_a_lane_that_is_being_drained),
        cmocka_unit_test(no_job_is_relieved_while_it_moves),
        cmocka_unit_test(an_operator_s_order_holds_against_relief_and_drains),
        cmocka_unit_test(a_job_that_relief_has_not_helped_waits_for_the_others),
        cmocka_unit_test(the_furthest_above_its_limit_is_relieved_first),
        cmocka_unit_test(relief_that_does_not_help_comes_ever_more_seldom),
        cmocka_unit_test(a_leap_of_the_clock_does_not_end_a_hold_time),
        cmocka_unit_test(a_stopped_clock_does_not_end_a_hold_time),
        cmocka_unit_test(equal_inputs_give_equal_decisions),
        cmocka_unit_test(inconsistent_input_is_refused_and_changes_nothing),
        cmocka_unit_test(a_pool_without_lanes_makes_no_decision),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
