/* Tests lanes, losses and slots in the scheduler of trials (F9 to F11, F13 of packer/elastic). */
#include "test/unit/packer/scheduler_rig.h"

static void growth_waits_for_lanes(void **state)
{
    struct rig rig = rig_new(4);
    rig_submit(&rig, 1, 4, 4);
    rig_submit(&rig, 2, 1, 4);
    rig_send(&rig, (struct scheduler_event){.kind = SCHEDULER_LANES_LIMIT, .job = 2, .workers = 2});
    rig_job(&rig, SCHEDULER_ENDED, 1);
    rig_expect(&rig, "lanes 2=1, start 2.0 @0, lanes 2=2, start 2.1 @1");
    rig_job(&rig, SCHEDULER_LANES_LIMIT, 2);
    rig_expect(&rig, "lanes 2=3, start 2.2 @2, lanes 2=4, start 2.3 @3");
    scheduler_destroy(rig.scheduler);
}

static void a_lost_worker_starts_again_after_a_wait_that_doubles(void **state)
{
    struct rig rig = rig_new(1);
    rig_submit(&rig, 1, 1, 1);
    for (uint64_t wait_s = 1; wait_s <= 32; wait_s *= 2) {
        rig_out(&rig, 1, 0);
        rig_expect(&rig, "lanes 1=0");
        assert_true(scheduler_wake_ns(rig.scheduler) <= rig.now_ns + wait_s * RIG_S);
        rig_wait(&rig, wait_s - 1);
        rig_expect(&rig, "");
        rig_wait(&rig, 1);
        rig_expect(&rig, "lanes 1=1, start 1.0 @0");
    }
    rig_measured(&rig, 1, 1, 0.1);
    rig_out(&rig, 1, 0);
    rig_wait(&rig, 1);
    rig_expect(&rig, "lanes 1=1, start 1.0 @0");
    scheduler_destroy(rig.scheduler);
}

static void a_job_below_its_minimum_is_served_before_the_queue(void **state)
{
    struct rig rig = rig_new(3);
    rig_submit(&rig, 1, 2, 2);
    rig_submit(&rig, 2, 1, 1);
    rig_submit(&rig, 3, 1, 1);
    rig_send(&rig, (struct scheduler_event){.kind = SCHEDULER_SLOT_LOST, .slot = 1});
    rig_wait(&rig, 1);
    rig_job(&rig, SCHEDULER_ENDED, 2);
    rig_expect(&rig, "lanes 1=2, start 1.1 @2");
    scheduler_destroy(rig.scheduler);
}

static void a_lost_slot_is_not_used_until_it_is_found(void **state)
{
    struct rig rig = rig_new(2);
    struct scheduler_event lost = {.kind = SCHEDULER_SLOT_LOST, .slot = 0};
    struct scheduler_event found = {.kind = SCHEDULER_SLOT_FOUND, .slot = 0};
    assert_int_equal(rig_send(&rig, found), -EINVAL);
    assert_int_equal(rig_send(&rig, lost), 0);
    assert_int_equal(rig_send(&rig, lost), -EINVAL);
    rig_submit(&rig, 1, 1, 3);
    rig_expect(&rig, "lanes 1=1, start 1.0 @1");
    assert_int_equal(rig_submit_as(&rig, 0, 2, 2, 2), -ENOSPC);
    rig_send(&rig, found);
    rig_expect(&rig, "lanes 1=2, start 1.1 @0");
    found.slot = 2; /* a new slot */
    rig_send(&rig, found);
    rig_expect(&rig, "lanes 1=3, start 1.2 @2");
    scheduler_destroy(rig.scheduler);
}

static void an_ordered_end_asks_every_worker_to_leave_the_first_rank_last(void **state)
{
    struct rig rig = rig_new(3);
    rig_submit(&rig, 1, 1, 3);
    rig_job(&rig, SCHEDULER_END_ORDERED, 1);
    rig_expect(&rig, "leave 1.2, leave 1.1, leave 1.0");
    for (uint32_t rank = 0; rank < 3; rank++)
        assert_int_equal(rig_out(&rig, 1, rank), 0);
    assert_int_equal(scheduler_totals(rig.scheduler).jobs, 0);
    assert_int_equal(scheduler_totals(rig.scheduler).free, 3);
    scheduler_destroy(rig.scheduler);
}

static void the_slots_of_an_ended_job_stay_idle_where_they_are_wasted(void **state)
{
    struct rig rig =
        rig_with((struct scheduler_options){.slots = 2, .never_rests = true, .wastes_ended = true});
    rig_submit(&rig, 1, 1, 1);
    rig_submit(&rig, 2, 1, 2);
    rig_job(&rig, SCHEDULER_ENDED, 1);
    rig_expect(&rig, "");
    rig_submit(&rig, 3, 1, 1);
    rig_expect(&rig, "lanes 3=1, start 3.0 @0");
    scheduler_destroy(rig.scheduler);
}

static int hold(struct rig *rig, uint32_t job, bool is_held)
{
    return rig_send(
        rig, (struct scheduler_event){.kind = SCHEDULER_HELD, .job = job, .is_held = is_held});
}

static int find_worker(struct rig *rig, uint32_t job, uint32_t rank, uint32_t slot)
{
    return rig_send(rig,
                    (struct scheduler_event){
                        .kind = SCHEDULER_WORKER_FOUND, .job = job, .rank = rank, .slot = slot});
}

static void a_held_job_gets_no_worker_and_gives_up_none(void **state)
{
    struct rig rig = rig_new(3);
    rig_submit(&rig, 1, 1, 3);
    rig_report(&rig, 1, 1, 0.5);
    assert_int_equal(hold(&rig, 1, true), 0);
    rig_wait(&rig, 61);
    rig_submit(&rig, 2, 1, 1);
    rig_expect(&rig, "");
    assert_int_equal(rig_out(&rig, 1, 0), 0);
    rig_expect(&rig, "lanes 1=2, lanes 2=1, start 2.0 @0");
    rig_job(&rig, SCHEDULER_ENDED, 2);
    rig_wait(&rig, 61);
    rig_expect(&rig, "");
    assert_int_equal(hold(&rig, 1, false), 0);
    rig_expect(&rig, "lanes 1=3, start 1.0 @0");
    scheduler_destroy(rig.scheduler);
}

static void a_held_job_in_the_queue_blocks_no_other(void **state)
{
    struct rig rig = rig_new(2);
    struct scheduler_job held = {.id = 1, .workers_min = 2, .workers_max = 2, .is_held = true};
    rig_send(&rig, (struct scheduler_event){.kind = SCHEDULER_SUBMITTED, .submitted = &held});
    rig_expect(&rig, "");
    rig_submit(&rig, 2, 1, 2);
    rig_expect(&rig, "lanes 2=1, start 2.0 @0, lanes 2=2, start 2.1 @1");
    rig_job(&rig, SCHEDULER_ENDED, 2);
    rig_expect(&rig, "");
    assert_int_equal(hold(&rig, 1, false), 0);
    rig_expect(&rig, "lanes 1=2, start 1.0 @0, start 1.1 @1");
    assert_int_equal(hold(&rig, 3, true), -ENOENT);
    scheduler_destroy(rig.scheduler);
}

static void a_found_worker_has_its_slot_without_a_start(void **state)
{
    struct rig rig = rig_new(4);
    struct scheduler_job held = {.id = 1, .workers_min = 1, .workers_max = 3, .is_held = true};
    rig_submit(&rig, 2, 1, 1);
    rig_send(&rig, (struct scheduler_event){.kind = SCHEDULER_SUBMITTED, .submitted = &held});
    assert_int_equal(find_worker(&rig, 1, 0, 0), -EINVAL); /* slot of job 2 */
    assert_int_equal(find_worker(&rig, 1, 0, 4), -EINVAL);
    assert_int_equal(find_worker(&rig, 1, SCHEDULER_WORKERS_MAX, 3), -EINVAL);
    assert_int_equal(find_worker(&rig, 2, 1, 3), -EINVAL); /* job 2 is not held */
    assert_int_equal(find_worker(&rig, 1, 0, 3), 0);
    assert_int_equal(find_worker(&rig, 1, 0, 2), -EINVAL); /* the rank has a slot */
    assert_int_equal(find_worker(&rig, 1, 1, 1), 0);
    rig_expect(&rig, "");
    struct scheduler_view view;
    assert_int_equal(scheduler_view(rig.scheduler, 1, &view), 0);
    assert_int_equal(view.state, SCHEDULER_ACTIVE);
    assert_int_equal(view.workers, 2);
    assert_false(view.is_probing);
    assert_int_equal(hold(&rig, 1, false), 0);
    rig_expect(&rig, "lanes 1=3, start 1.2 @2");
    assert_int_equal(hold(&rig, 1, true), 0);
    assert_int_equal(find_worker(&rig, 1, 5, 2), -EINVAL);
    scheduler_destroy(rig.scheduler);
}

static void may_rest(struct rig *rig, uint32_t job, bool may)
{
    rig_send(rig,
             (struct scheduler_event){.kind = SCHEDULER_MAY_REST, .job = job, .may_rest = may});
}

static void a_job_that_never_rests_makes_no_room_by_a_rest(void **state)
{
    struct rig rig = rig_new(2);
    rig_submit(&rig, 1, 2, 2);
    rig_report(&rig, 1, 1, 0.5);
    may_rest(&rig, 1, false);
    rig_wait(&rig, 61);
    rig_submit(&rig, 2, 1, 1);
    rig_expect(&rig, "");
    may_rest(&rig, 1, true);
    rig_expect(&rig, "rest 1");
    scheduler_destroy(rig.scheduler);
}

static void a_rest_by_order_needs_no_permission(void **state)
{
    struct rig rig = rig_new(2);
    rig_submit(&rig, 1, 1, 1);
    may_rest(&rig, 1, false);
    rig_job(&rig, SCHEDULER_REST_ORDERED, 1);
    rig_expect(&rig, "rest 1");
    assert_true(rig_view(&rig, 1).rests_by_order);
    scheduler_destroy(rig.scheduler);
}

static void a_caller_that_ends_no_process_lets_only_some_jobs_sleep(void **state)
{
    struct rig rig = rig_with((struct scheduler_options){.slots = 2,
                                                         .hold_ns = 60 * RIG_S,
                                                         .quantum_ns = 20 * RIG_S,
                                                         .resting_max = 1,
                                                         .keeps_processes = true});
    for (uint32_t job = 1; job <= 2; job++) {
        rig_submit(&rig, job, 1, 1);
        rig_report(&rig, job, 1, job);
    }
    rig_wait(&rig, 61);
    rig_submit(&rig, 3, 2, 2);
    rig_expect(&rig, ""); /* both jobs would have to rest */
    rig_job(&rig, SCHEDULER_ENDED, 3);
    rig_submit(&rig, 4, 1, 1);
    rig_expect(&rig, "rest 2");
    rig_submit(&rig, 5, 1, 1);
    rig_expect(&rig, "");
    rig_job(&rig, SCHEDULER_REST_ORDERED, 1);
    rig_expect(&rig, "rest 1");
    scheduler_destroy(rig.scheduler);
}

static void a_found_rest_goes_on_by_waking_its_processes(void **state)
{
    struct rig rig = rig_new(2);
    struct scheduler_event found = {.kind = SCHEDULER_REST_FOUND, .job = 1};
    struct scheduler_job held = {.id = 1, .workers_min = 1, .workers_max = 2, .is_held = true};
    rig_send(&rig, (struct scheduler_event){.kind = SCHEDULER_SUBMITTED, .submitted = &held});
    assert_int_equal(rig_send(&rig, found), 0);
    assert_int_equal(rig_view(&rig, 1).state, SCHEDULER_RESTING);
    assert_int_equal(rig_send(&rig, found), -EINVAL);
    hold(&rig, 1, false);
    rig_expect(&rig, "lanes 1=1, wake 1.0 @0, lanes 1=2, start 1.1 @1");
    scheduler_destroy(rig.scheduler);
}

static void a_found_rest_frees_the_slots_of_workers_that_fall_asleep_later(void **state)
{
    struct rig rig = rig_new(2);
    struct scheduler_job held = {.id = 1, .workers_min = 1, .workers_max = 1, .is_held = true};
    rig_send(&rig, (struct scheduler_event){.kind = SCHEDULER_SUBMITTED, .submitted = &held});
    assert_int_equal(find_worker(&rig, 1, 0, 1), 0);
    assert_int_equal(
        rig_send(&rig, (struct scheduler_event){.kind = SCHEDULER_REST_FOUND, .job = 1}), 0);
    assert_int_equal(rig_view(&rig, 1).leaving, 1);
    assert_int_equal(rig_out(&rig, 1, 0), 0);
    assert_int_equal(scheduler_totals(rig.scheduler).free, 2);
    scheduler_destroy(rig.scheduler);
}

int main(void)
{
    static const struct CMUnitTest cases[] = {
        cmocka_unit_test(growth_waits_for_lanes),
        cmocka_unit_test(a_lost_worker_starts_again_after_a_wait_that_doubles),
        cmocka_unit_test(a_job_below_its_minimum_is_served_before_the_queue),
        cmocka_unit_test(a_lost_slot_is_not_used_until_it_is_found),
        cmocka_unit_test(an_ordered_end_asks_every_worker_to_leave_the_first_rank_last),
        cmocka_unit_test(the_slots_of_an_ended_job_stay_idle_where_they_are_wasted),
        cmocka_unit_test(a_held_job_gets_no_worker_and_gives_up_none),
        cmocka_unit_test(a_held_job_in_the_queue_blocks_no_other),
        cmocka_unit_test(a_found_worker_has_its_slot_without_a_start),
        cmocka_unit_test(a_job_that_never_rests_makes_no_room_by_a_rest),
        cmocka_unit_test(a_rest_by_order_needs_no_permission),
        cmocka_unit_test(a_caller_that_ends_no_process_lets_only_some_jobs_sleep),
        cmocka_unit_test(a_found_rest_goes_on_by_waking_its_processes),
        cmocka_unit_test(a_found_rest_frees_the_slots_of_workers_that_fall_asleep_later),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
