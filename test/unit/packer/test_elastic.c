/* Tests which jobs shrink for a new job, and which jobs grow after another job has ended (E1 to E5
 * of packer). The figures can be computed by hand. */
#include "packer/growth/elastic.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define NOW_NS UINT64_C(1000000000)
#define CHANGES 16

static struct elastic_change changes[CHANGES];

/* Makes a job. A round takes work/w + share*w/s seconds. */
static struct elastic_job job(uint32_t id, uint32_t workers, uint32_t servers, double work)
{
    return (struct elastic_job){.id = id,
                                .tenant = id,
                                .has = {workers, servers},
                                .least = {1, 1},
                                .speed = {.work = work, .share = 0.01},
                                .stay_s = 1000,
                                .resize_s = 1};
}

static int make_room(struct elastic_job *jobs, size_t count, struct elastic_slots *free,
                     uint32_t workers, uint32_t servers)
{
    return elastic_make_room(jobs, count, free, (struct elastic_slots){workers, servers}, NOW_NS,
                             changes, CHANGES);
}

static void expect_change(size_t at, uint32_t id, uint32_t workers, uint32_t servers)
{
    assert_int_equal(changes[at].job, id);
    assert_int_equal(changes[at].by.workers, workers);
    assert_int_equal(changes[at].by.servers, servers);
}

static void the_speed_is_that_of_its_formula(void **state)
{
    const struct elastic_speed speed = {8, 0.5, 0.25, 0.125, 0.0625};
    /* the time of a round is 8/4 + 0.5 + 0.25*4/2 + 0.125*4 + 0.0625*2 = 3.625 s */
    assert_true(elastic_rounds_per_s(&speed, 4, 2) == 1 / 3.625);
    assert_true(elastic_rounds_per_s(&speed, 0, 2) == 0);
    assert_true(elastic_rounds_per_s(&(struct elastic_speed){0}, 1, 1) == 0);
}

static void free_slots_are_used_first(void **state)
{
    struct elastic_job jobs[] = {job(1, 4, 2, 1)};
    struct elastic_slots free = {2, 1};
    assert_int_equal(make_room(jobs, 1, &free, 2, 1), 0);
    assert_int_equal(jobs[0].has.workers, 4);
}

static void the_job_that_loses_least_shrinks_by_a_bundle(void **state)
{
    /* rounds a second that one worker less costs: 1/(1/4+0.02) - 1/(1/3+0.03) = 0.95 for job 1,
     * 1/(10/4+0.02) - 1/(10/3+0.03) = 0.10 for job 2 */
    struct elastic_job jobs[] = {job(1, 4, 2, 1), job(2, 4, 2, 10)};
    struct elastic_slots free = {0, 0};
    assert_int_equal(make_room(jobs, 2, &free, 1, 1), 1);
    expect_change(0, 2, 1, 1);
    assert_int_equal(jobs[1].has.workers, 3);
    assert_int_equal(jobs[1].has.servers, 1);
    assert_int_equal(free.workers + free.servers, 2);
}

static void no_job_shrinks_below_its_minimum_and_one_worker_can_be_given(void **state)
{
    struct elastic_job jobs[] = {job(1, 1, 1, 10), job(2, 3, 1, 1)};
    struct elastic_slots free = {0, 0};
    assert_int_equal(make_room(jobs, 2, &free, 2, 0), 2);
    expect_change(0, 2, 1, 0);
    expect_change(1, 2, 1, 0);
    assert_int_equal(jobs[1].has.workers, 1);
}

static void probing_jobs_and_those_in_their_hold_time_give_nothing(void **state)
{
    struct elastic_job jobs[] = {job(1, 4, 4, 10), job(2, 4, 4, 10), job(3, 4, 4, 1)};
    struct elastic_slots free = {0, 0};
    jobs[0].is_probing = true;
    jobs[1].held_until_ns = NOW_NS + 1;
    assert_int_equal(make_room(jobs, 3, &free, 1, 1), 1);
    expect_change(0, 3, 1, 1);
    assert_true(jobs[2].held_until_ns == NOW_NS + ELASTIC_HOLD_NS);
    assert_int_equal(make_room(jobs, 3, &free, 2, 2), -ENOSPC);
}

static void victims_are_spread_over_tenants(void **state)
{
    struct elastic_job jobs[] = {job(1, 8, 8, 100), job(2, 8, 8, 100), job(3, 8, 8, 1)};
    struct elastic_slots free = {0, 0};
    jobs[1].tenant = 1;
    assert_int_equal(make_room(jobs, 3, &free, 3, 3), 3);
    expect_change(0, 1, 1, 1);
    expect_change(1, 3, 1, 1);
    assert_true(changes[2].job == 1 || changes[2].job == 2);
}

static void a_job_that_finds_no_room_waits_and_nothing_changes(void **state)
{
    struct elastic_job jobs[] = {job(1, 3, 2, 1), job(2, 2, 2, 1)}, before[2];
    struct elastic_slots free = {1, 0};
    memcpy(before, jobs, sizeof jobs);
    assert_int_equal(make_room(jobs, 2, &free, 5, 1), -ENOSPC);
    assert_memory_equal(before, jobs, sizeof jobs);
    assert_int_equal(free.workers, 1);
    assert_int_equal(
        elastic_make_room(jobs, 2, &free, (struct elastic_slots){4, 2}, NOW_NS, changes, 1),
        -ENOBUFS);
    assert_memory_equal(before, jobs, sizeof jobs);
}

static void remaining_workers_go_one_by_one_to_the_largest_gain(void **state)
{
    /* gain of one more worker in rounds a second: 1.84, 1.70, 1.53 for job 1; 0.20, 0.19 for job
     * 2 */
    struct elastic_job jobs[] = {job(2, 2, 2, 5), job(1, 2, 2, 0.5)};
    struct elastic_slots free = {2, 0};
    assert_int_equal(elastic_share_out(jobs, 2, &free, NOW_NS, changes, CHANGES), 2);
    expect_change(0, 1, 1, 0);
    expect_change(1, 1, 1, 0);
    assert_int_equal(free.workers, 0);
}

static void a_server_is_given_where_it_gains_more_than_a_worker(void **state)
{
    struct elastic_job jobs[] = {job(1, 4, 1, 0.1)};
    struct elastic_slots free = {1, 1};
    jobs[0].speed.share = 1;
    assert_true(elastic_share_out(jobs, 1, &free, NOW_NS, changes, 1) == 1);
    expect_change(0, 1, 0, 1);
}

static void probing_jobs_below_their_need_are_first(void **state)
{
    struct elastic_job jobs[] = {job(1, 2, 2, 0.5), job(2, 1, 1, 100)};
    struct elastic_slots free = {1, 1};
    jobs[1].is_probing = true;
    jobs[1].least = (struct elastic_slots){2, 2};
    assert_int_equal(elastic_share_out(jobs, 2, &free, NOW_NS, changes, CHANGES), 1);
    expect_change(0, 2, 1, 1);
}

static void a_gain_below_the_cost_of_the_change_does_not_count(void **state)
{
    struct elastic_job jobs[] = {job(1, 2, 2, 1)};
    struct elastic_slots free = {1, 1};
    jobs[0].stay_s = 2;
    jobs[0].resize_s = 1; /* the change gains 0.94 rounds a second for 2 s, but costs 1.96 rounds */
    assert_int_equal(elastic_share_out(jobs, 1, &free, NOW_NS, changes, CHANGES), 0);
    jobs[0].stay_s = 3;
    assert_true(elastic_share_out(jobs, 1, &free, NOW_NS, changes, CHANGES) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_speed_is_that_of_its_formula),
        cmocka_unit_test(free_slots_are_used_first),
        cmocka_unit_test(the_job_that_loses_least_shrinks_by_a_bundle),
        cmocka_unit_test(no_job_shrinks_below_its_minimum_and_one_worker_can_be_given),
        cmocka_unit_test(probing_jobs_and_those_in_their_hold_time_give_nothing),
        cmocka_unit_test(victims_are_spread_over_tenants),
        cmocka_unit_test(a_job_that_finds_no_room_waits_and_nothing_changes),
        cmocka_unit_test(remaining_workers_go_one_by_one_to_the_largest_gain),
        cmocka_unit_test(a_server_is_given_where_it_gains_more_than_a_worker),
        cmocka_unit_test(probing_jobs_below_their_need_are_first),
        cmocka_unit_test(a_gain_below_the_cost_of_the_change_does_not_count),
    };
    return cmocka_run_group_tests_name("elastic", tests, NULL, NULL);
}
