/* Tests decisions of the scheduler of trials (F2 to F8 of packer/elastic). Jobs have the ids 1,
 * 2, ... "start 1.0 @2" means rank 0 of job 1 on slot 2. */
#include "test/unit/packer/scheduler_rig.h"

/* --- F4: free slots --- */

static void a_lone_job_grows_to_its_maximum(void **state)
{
    struct rig rig = rig_new(4);
    rig_submit(&rig, 1, 1, 3);
    rig_expect(&rig, "lanes 1=1, start 1.0 @0, lanes 1=3, start 1.1 @1, start 1.2 @2");
    scheduler_destroy(rig.scheduler);
}

static void free_slots_go_one_by_one_to_the_largest_gain(void **state)
{
    struct rig rig = rig_new(4);
    rig_submit(&rig, 1, 1, 2);
    rig_submit(&rig, 2, 1, 8);
    rig_expect(&rig, "lanes 2=1, start 2.0 @2, lanes 2=2, start 2.1 @3");
    rig_job(&rig, SCHEDULER_ENDED, 1);
    rig_expect(&rig, "lanes 2=3, start 2.2 @0, lanes 2=4, start 2.3 @1");
    scheduler_destroy(rig.scheduler);
}

static void submit_announcing(struct rig *rig, uint32_t id, uint32_t followers)
{
    struct scheduler_job job = {.id = id, .study = 5, .workers_min = 1, .workers_max = 4};
    assert_int_equal(rig_send(rig, (struct scheduler_event){.kind = SCHEDULER_SUBMITTED,
                                                            .submitted = &job,
                                                            .followers = followers}),
                     0);
}

static void no_job_grows_on_slots_of_announced_jobs(void **state)
{
    struct rig rig = rig_new(4);
    submit_announcing(&rig, 1, 2);
    rig_expect(&rig, "lanes 1=1, start 1.0 @0, lanes 1=2, start 1.1 @1");
    submit_announcing(&rig, 2, 1);
    rig_expect(&rig, "lanes 2=1, start 2.0 @2");
    submit_announcing(&rig, 3, 0);
    rig_expect(&rig, "lanes 3=1, start 3.0 @3");
    scheduler_destroy(rig.scheduler);
}

static void slots_of_announced_jobs_that_do_not_come_are_given_away(void **state)
{
    struct rig rig = rig_new(3);
    submit_announcing(&rig, 1, 9);
    rig_expect(&rig, "lanes 1=1, start 1.0 @0");
    assert_int_equal(scheduler_wake_ns(rig.scheduler), rig.now_ns + SCHEDULER_FOLLOW_NS);
    rig_wait(&rig, 9);
    rig_expect(&rig, "");
    rig_submit(&rig, 2, 1, 1); /* a job of another study starts */
    rig_expect(&rig, "lanes 2=1, start 2.0 @1");
    rig_wait(&rig, 1);
    rig_expect(&rig, "lanes 1=2, start 1.1 @2");
    scheduler_destroy(rig.scheduler);
}

static void the_slots_of_an_ended_job_go_to_the_queue_first(void **state)
{
    struct rig rig = rig_new(2);
    rig_submit(&rig, 1, 1, 1);
    rig_submit(&rig, 2, 1, 2);
    rig_submit(&rig, 3, 1, 1);
    rig_expect(&rig, "");
    rig_job(&rig, SCHEDULER_ENDED, 1);
    rig_expect(&rig, "lanes 3=1, start 3.0 @0");
    scheduler_destroy(rig.scheduler);
}

static void growth_that_costs_more_than_it_brings_is_left_out(void **state)
{
    struct rig rig = rig_with((struct scheduler_options){.slots = 2, .resize_ns = 100 * RIG_S});
    struct scheduler_job job = {.id = 2, .workers_min = 1, .workers_max = 2, .steps = 100};
    rig_submit(&rig, 1, 1, 1);
    rig_send(&rig, (struct scheduler_event){.kind = SCHEDULER_SUBMITTED, .submitted = &job});
    rig_wait(&rig, 1);
    rig_measured(&rig, 2, 1, 1.0);
    rig_job(&rig, SCHEDULER_ENDED, 1);
    rig_expect(&rig, ""); /* at most 50 s remain, but the change takes 100 s */
    scheduler_destroy(rig.scheduler);
}

static void growth_below_half_of_its_promise_is_undone_until_the_speed_drifts(void **state)
{
    struct rig rig = rig_new(2);
    rig_submit(&rig, 1, 1, 1);
    rig_submit(&rig, 2, 1, 2);
    rig_wait(&rig, 10);
    rig_measured(&rig, 2, 1, 1.0);
    rig_job(&rig, SCHEDULER_ENDED, 1);
    rig_expect(&rig, "lanes 2=2, start 2.1 @0");
    rig_measured(&rig, 2, 2, 0.9); /* 0.55 was expected */
    rig_expect(&rig, "leave 2.1");
    rig_out(&rig, 2, 1);
    rig_expect(&rig, "lanes 2=1");
    rig_measured(&rig, 2, 1, 1.1);
    rig_expect(&rig, "");
    rig_measured(&rig, 2, 1, 1.4);
    rig_expect(&rig, "lanes 2=2, start 2.1 @0");
    scheduler_destroy(rig.scheduler);
}

/* --- F2: arrival --- */

/* Makes jobs 1 and 2 on four slots. Each of these jobs has two workers, has sent a report, and is
 * past its hold time. */
static struct rig rig_with_two_running(void)
{
    struct rig rig = rig_new(4);
    rig_submit(&rig, 1, 1, 2);
    rig_submit(&rig, 2, 1, 2);
    rig_report(&rig, 1, 1, 0.5);
    rig_report(&rig, 2, 1, 0.7);
    rig_wait(&rig, 60);
    return rig;
}

static void an_arrival_takes_the_worker_whose_job_loses_least(void **state)
{
    struct rig rig = rig_with_two_running();
    rig_measured(&rig, 1, 2, 1.0);
    rig_submit(&rig, 3, 1, 1);
    /* with equal losses, the job with the lowest id loses a worker */
    rig_expect(&rig, "leave 1.1");
    rig_out(&rig, 1, 1);
    rig_expect(&rig, "lanes 1=1, lanes 3=1, start 3.0 @1");
    scheduler_destroy(rig.scheduler);
}

static void a_leaving_worker_gets_one_request(void **state)
{
    struct rig rig = rig_with_two_running();
    rig_submit(&rig, 3, 1, 1);
    rig_wait(&rig, 1);
    rig_expect(&rig, "");
    rig_submit(&rig, 4, 1, 1);
    rig_expect(&rig, "leave 2.1");
    rig_out(&rig, 2, 1);
    /* job 3 is the first job of the queue */
    rig_expect(&rig, "lanes 2=1, lanes 3=1, start 3.0 @3");
    scheduler_destroy(rig.scheduler);
}

static void a_probing_job_gives_up_only_the_workers_that_it_gained(void **state)
{
    struct rig rig = rig_new(4);
    rig_submit(&rig, 1, 2, 3);
    rig_submit(&rig, 2, 1, 1);
    rig_submit(&rig, 3, 1, 1);
    rig_expect(&rig, "leave 1.2");
    rig_submit(&rig, 4, 1, 1);
    rig_expect(&rig, "");
    rig_wait(&rig, 1000);
    rig_expect(&rig, "");
    assert_int_equal(rig_view(&rig, 4).state, SCHEDULER_WAITING);
    scheduler_destroy(rig.scheduler);
}

static void a_probing_job_grows_while_others_rest(void **state)
{
    struct rig rig = rig_new(4);
    for (uint32_t id = 1; id <= 4; id++)
        rig_submit(&rig, id, 1, 1);
    for (uint32_t id = 1; id <= 4; id++)
        rig_report(&rig, id, 1, 0.1 * id);
    rig_wait(&rig, 20);
    rig_submit(&rig, 5, 1, 8);
    rig_expect(&rig, "rest 4");
    rig_out(&rig, 4, 0);
    /* up to 3 of 4 jobs may rest */
    rig_expect(&rig, "lanes 4=0, lanes 5=1, start 5.0 @3, rest 3, rest 2");
    rig_out(&rig, 3, 0);
    rig_out(&rig, 2, 0);
    rig_expect(&rig, "lanes 2=0, lanes 5=3, start 5.2 @1");
    rig_report(&rig, 5, 1, 0.5);
    rig_wait(&rig, 60);            /* the hold time ends */
    rig_expect(&rig, "leave 5.2"); /* the slot is for the job with the best report */
    rig_out(&rig, 5, 2);
    rig_expect(&rig, "lanes 5=2, lanes 2=1, wake 2.0 @1");
    scheduler_destroy(rig.scheduler);
}

static void a_held_job_gives_no_worker(void **state)
{
    struct rig rig = rig_with((struct scheduler_options){
        .slots = 4, .hold_ns = 60 * RIG_S, .quantum_ns = 20 * RIG_S, .never_rests = true});
    rig_submit(&rig, 1, 1, 4);
    rig_report(&rig, 1, 1, 0.5);
    rig_wait(&rig, 59);
    rig_submit(&rig, 2, 1, 1);
    rig_expect(&rig, "");
    assert_true(scheduler_wake_ns(rig.scheduler) == 60 * RIG_S);
    rig_wait(&rig, 1);
    rig_expect(&rig, "leave 1.3");
    scheduler_destroy(rig.scheduler);
}

/* --- F3: rests --- */

/* Makes jobs 1 to 4 on four slots, with one worker and one report each. */
static struct rig rig_with_four(const uint32_t rungs[4], const double values[4])
{
    struct rig rig = rig_new(4);
    for (uint32_t id = 1; id <= 4; id++)
        rig_submit(&rig, id, 1, 1);
    for (uint32_t id = 1; id <= 4; id++)
        rig_report(&rig, id, rungs[id - 1], values[id - 1]);
    rig_wait(&rig, 20);
    return rig;
}

static void the_lowest_rung_rests_first_then_the_worst_report(void **state)
{
    struct rig rig = rig_with_four((uint32_t[]){2, 1, 1, 1}, (double[]){0.9, 0.3, 0.8, 0.5});
    rig_submit(&rig, 5, 1, 1);
    rig_expect(&rig, "rest 3");
    rig_submit(&rig, 6, 1, 1);
    rig_expect(&rig, "rest 4");
    rig_submit(&rig, 7, 1, 1);
    rig_expect(&rig, "rest 2");
    rig_submit(&rig, 8, 1, 1);
    rig_expect(&rig, ""); /* with job 8 all slots would be used for probes */
    scheduler_destroy(rig.scheduler);
}

static void stand(struct rig *rig, uint32_t job, uint32_t rung, double value)
{
    assert_int_equal(rig_send(rig, (struct scheduler_event){.kind = SCHEDULER_STANDING,
                                                            .job = job,
                                                            .rung = rung,
                                                            .value = value}),
                     0);
}

/* The live service measures the first step, which has no value; the study sends rung and value. */
static void a_standing_orders_rests_without_a_report(void **state)
{
    struct rig rig = rig_with_four((uint32_t[]){0, 0, 0, 0}, (double[]){NAN, NAN, NAN, NAN});
    stand(&rig, 4, 2, 0.5);
    stand(&rig, 3, 1, 0.3);
    stand(&rig, 2, 1, 0.8);
    stand(&rig, 1, 1, NAN);
    rig_submit(&rig, 5, 1, 1);
    rig_expect(&rig, "rest 1");
    rig_submit(&rig, 6, 1, 1);
    rig_expect(&rig, "rest 2");
    rig_submit(&rig, 7, 1, 1);
    rig_expect(&rig, "rest 3");
    scheduler_destroy(rig.scheduler);
}

static void a_report_that_is_no_number_ranks_last(void **state)
{
    struct rig rig = rig_with_four((uint32_t[]){1, 1, 1, 1}, (double[]){0.9, NAN, 99, 0.5});
    rig_submit(&rig, 5, 1, 1);
    rig_expect(&rig, "rest 2");
    scheduler_destroy(rig.scheduler);
}

static void a_job_does_not_rest_within_its_quantum(void **state)
{
    struct rig rig = rig_new(1);
    rig_submit(&rig, 1, 1, 1);
    rig_report(&rig, 1, 1, 0.5);
    rig_wait(&rig, 19);
    rig_submit(&rig, 2, 1, 1);
    rig_expect(&rig, "");
    rig_wait(&rig, 1);
    rig_expect(&rig, "rest 1");
    scheduler_destroy(rig.scheduler);
}

static void probing_jobs_make_others_rest_up_to_three_quarters_of_the_site(void **state)
{
    struct rig rig = rig_with_four((uint32_t[]){1, 1, 1, 1}, (double[]){0.1, 0.2, 0.3, 0.4});
    for (uint32_t id = 5; id <= 8; id++) {
        rig_submit(&rig, id, 1, 1);
        for (uint32_t old = 1; old <= 4; old++)
            if (rig_view(&rig, old).leaving)
                rig_out(&rig, old, 0);
    }
    assert_int_equal(scheduler_totals(rig.scheduler).probing, 3);
    assert_int_equal(rig_view(&rig, 1).state, SCHEDULER_ACTIVE);
    assert_int_equal(rig_view(&rig, 8).state, SCHEDULER_WAITING);
    scheduler_destroy(rig.scheduler);
}

static void the_highest_rung_wakes_first_then_the_best_report(void **state)
{
    struct rig rig = rig_with_four((uint32_t[]){1, 1, 1, 2}, (double[]){0.1, 0.2, 0.3, 0.9});
    for (uint32_t id = 1; id <= 4; id++)
        rig_job(&rig, SCHEDULER_REST_ORDERED, id);
    for (uint32_t id = 1; id <= 4; id++)
        rig_out(&rig, id, 0);
    rig_submit(&rig, 9, 4, 4);
    for (uint32_t id = 1; id <= 4; id++)
        rig_job(&rig, SCHEDULER_GO_ON_ORDERED, id);
    rig_expect(&rig, "");
    rig_job(&rig, SCHEDULER_ENDED, 9);
    rig_expect(&rig, "lanes 4=1, wake 4.0 @0, lanes 1=1, wake 1.0 @1, lanes 2=1, wake 2.0 @2, "
                     "lanes 3=1, wake 3.0 @3");
    scheduler_destroy(rig.scheduler);
}

/* Makes one slot for jobs 1 and 2. Job 2 arrives later, and job 1 then rests. */
static struct rig rig_with_a_rest(void)
{
    struct rig rig = rig_new(1);
    rig_submit(&rig, 1, 1, 1);
    rig_report(&rig, 1, 1, 0.5);
    rig_wait(&rig, 20);
    rig_submit(&rig, 2, 1, 1);
    rig_expect(&rig, "rest 1");
    rig_out(&rig, 1, 0);
    rig_expect(&rig, "lanes 1=0, lanes 2=1, start 2.0 @0");
    return rig;
}

static void an_overdue_rest_is_served_as_the_first_arrival(void **state)
{
    struct rig rig = rig_with_a_rest();
    rig_report(&rig, 2, 1, 0.1);
    rig_wait(&rig, 599);
    rig_expect(&rig, "");
    rig_wait(&rig, 1);
    rig_expect(&rig, "rest 2");
    rig_submit(&rig, 3, 1, 1);
    rig_out(&rig, 2, 0);
    rig_expect(&rig, "lanes 2=0, lanes 1=1, wake 1.0 @0"); /* job 1 continues before job 3 starts */
    scheduler_destroy(rig.scheduler);
}

static void beyond_the_most_resting_jobs_a_rest_ends_the_processes(void **state)
{
    struct rig rig = rig_with((struct scheduler_options){
        .slots = 4, .resting_max = 1, .hold_ns = 60 * RIG_S, .quantum_ns = 20 * RIG_S});
    for (uint32_t id = 1; id <= 4; id++)
        rig_submit(&rig, id, 1, 1);
    for (uint32_t id = 1; id <= 4; id++)
        rig_report(&rig, id, 1, 0.1 * id);
    rig_wait(&rig, 20);
    rig_submit(&rig, 5, 1, 1);
    rig_expect(&rig, "rest 4");
    rig_submit(&rig, 6, 1, 1);
    rig_expect(&rig, "rest 3 and end");
    rig_out(&rig, 4, 0);
    rig_out(&rig, 3, 0);
    rig_job(&rig, SCHEDULER_ENDED, 5);
    /* job 3 continues from a snapshot, because its report is better */
    rig_expect(&rig, "lanes 3=1, start 3.0 @3");
    rig_job(&rig, SCHEDULER_ENDED, 6);
    rig_expect(&rig, "lanes 4=1, wake 4.0 @2");
    scheduler_destroy(rig.scheduler);
}

static void an_ordered_rest_lasts_until_its_order(void **state)
{
    struct rig rig = rig_new(2);
    rig_submit(&rig, 1, 1, 2);
    assert_int_equal(rig_job(&rig, SCHEDULER_REST_ORDERED, 1), 0);
    rig_expect(&rig, "rest 1");
    rig_out(&rig, 1, 0);
    rig_out(&rig, 1, 1);
    rig_wait(&rig, 10000);
    rig_expect(&rig, "");
    rig_job(&rig, SCHEDULER_GO_ON_ORDERED, 1);
    rig_expect(&rig, "lanes 1=1, wake 1.0 @0, lanes 1=2, start 1.1 @1");
    scheduler_destroy(rig.scheduler);
}

static void eps_alone_never_rests_a_job(void **state)
{
    struct rig rig = rig_with((struct scheduler_options){.slots = 1, .never_rests = true});
    rig_submit(&rig, 1, 1, 1);
    rig_report(&rig, 1, 1, 0.5);
    rig_wait(&rig, 1000);
    rig_submit(&rig, 2, 1, 1);
    rig_expect(&rig, "");
    scheduler_destroy(rig.scheduler);
}

/* --- F7: silence --- */

static void a_silent_trial_counts_as_running_after_ten_median_probes(void **state)
{
    struct rig rig = rig_new(2);
    rig_submit(&rig, 1, 1, 1);
    rig_submit(&rig, 2, 1, 1);
    rig_wait(&rig, 30);
    rig_report(&rig, 1, 1, 0.5); /* the probe lasts 30 s */
    rig_wait(&rig, 269);
    assert_true(rig_view(&rig, 2).is_probing);
    rig_wait(&rig, 1);
    assert_false(rig_view(&rig, 2).is_probing);
    rig_submit(&rig, 3, 1, 1);
    rig_expect(&rig, "rest 2"); /* a job without a report is last */
    scheduler_destroy(rig.scheduler);
}

static void without_a_probe_silence_lasts_twenty_minutes(void **state)
{
    struct rig rig = rig_new(1);
    rig_submit(&rig, 1, 1, 1);
    rig_wait(&rig, 1199);
    assert_true(rig_view(&rig, 1).is_probing);
    rig_wait(&rig, 1);
    assert_false(rig_view(&rig, 1).is_probing);
    scheduler_destroy(rig.scheduler);
}

/* --- F6: tenants --- */

static void the_lowest_tenant_is_served_first_and_the_highest_gives(void **state)
{
    struct rig rig = rig_new(4);
    rig_submit_as(&rig, 1, 1, 1, 1);
    rig_submit_as(&rig, 1, 2, 1, 1);
    rig_submit_as(&rig, 1, 3, 1, 1);
    rig_submit_as(&rig, 2, 4, 1, 1);
    for (uint32_t id = 1; id <= 4; id++)
        rig_report(&rig, id, 1, id == 4 ? 0.9 : 0.1);
    rig_submit_as(&rig, 1, 5, 1, 1);
    rig_submit_as(&rig, 2, 6, 1, 1);
    rig_wait(&rig, 20);
    /* job 4 has the worst report, but its tenant has the fewest slots */
    rig_expect(&rig, "rest 3, rest 2");
    rig_out(&rig, 3, 0);
    rig_expect(&rig, "lanes 3=0, lanes 5=1, start 5.0 @2"); /* both tenants have one slot */
    rig_out(&rig, 2, 0);
    rig_expect(&rig, "lanes 2=0, lanes 6=1, start 6.0 @1");
    scheduler_destroy(rig.scheduler);
}

/* --- F8: gangs and stages --- */

static void a_gang_gathers_the_slots_that_come_free(void **state)
{
    struct rig rig = rig_new(4);
    for (uint32_t id = 1; id <= 4; id++)
        rig_submit(&rig, id, 1, 1);
    rig_submit(&rig, 5, 3, 3);
    rig_submit(&rig, 6, 1, 1);
    rig_job(&rig, SCHEDULER_ENDED, 1);
    rig_expect(&rig, ""); /* the slots are reserved for the gang, and job 6 waits behind the gang */
    rig_job(&rig, SCHEDULER_ENDED, 2);
    rig_expect(&rig, "");
    rig_job(&rig, SCHEDULER_ENDED, 3);
    rig_expect(&rig, "lanes 5=3, start 5.0 @0, start 5.1 @1, start 5.2 @2");
    rig_job(&rig, SCHEDULER_ENDED, 4);
    rig_expect(&rig, "lanes 6=1, start 6.0 @3");
    scheduler_destroy(rig.scheduler);
}

static void a_gang_makes_room_all_or_nothing(void **state)
{
    struct rig rig = rig_with_four((uint32_t[]){1, 1, 1, 1}, (double[]){0.1, 0.2, 0.3, 0.4});
    rig_submit(&rig, 5, 3, 3);
    rig_expect(&rig, "rest 2, rest 3, rest 4");
    rig_out(&rig, 4, 0);
    rig_out(&rig, 2, 0);
    rig_expect(&rig, "lanes 2=0");
    rig_out(&rig, 3, 0);
    rig_expect(&rig, "lanes 3=0, lanes 5=3, start 5.0 @1, start 5.1 @2, start 5.2 @3");
    scheduler_destroy(rig.scheduler);
}

static void a_stage_neither_grows_nor_shrinks_nor_rests(void **state)
{
    struct rig rig = rig_new(4);
    struct scheduler_job stage = {.id = 1, .workers_min = 2, .workers_max = 4, .is_stage = true};
    rig_send(&rig, (struct scheduler_event){.kind = SCHEDULER_SUBMITTED, .submitted = &stage});
    rig_expect(&rig, "lanes 1=2, start 1.0 @0, start 1.1 @1");
    rig_submit(&rig, 2, 2, 2);
    rig_report(&rig, 2, 3, 0.1);
    rig_wait(&rig, 2000);
    rig_submit(&rig, 3, 1, 1);
    rig_expect(&rig, "rest 2");
    scheduler_destroy(rig.scheduler);
}

static void an_impossible_job_is_refused_and_changes_nothing(void **state)
{
    struct rig rig = rig_new(4);
    assert_int_equal(rig_submit_as(&rig, 0, 1, 5, 8), -ENOSPC);
    assert_int_equal(rig_submit_as(&rig, 0, 1, 0, 1), -EINVAL);
    assert_int_equal(rig_submit_as(&rig, 0, 1, 2, 1), -EINVAL);
    assert_int_equal(rig_submit_as(&rig, 0, 1, 1, SCHEDULER_WORKERS_MAX + 1), -EINVAL);
    assert_int_equal(scheduler_totals(rig.scheduler).jobs, 0);
    rig_submit(&rig, 1, 4, 4);
    assert_int_equal(rig_submit_as(&rig, 0, 1, 1, 1), -EEXIST);
    assert_int_equal(rig_job(&rig, SCHEDULER_ENDED, 2), -ENOENT);
    assert_int_equal(rig_out(&rig, 1, 4), -ENOENT);
    rig_wait(&rig, 1);
    rig.now_ns = 0;
    assert_int_equal(rig_job(&rig, SCHEDULER_TICK, 0), -EINVAL);
    assert_int_equal(scheduler_totals(rig.scheduler).jobs, 1);
    scheduler_destroy(rig.scheduler);
}

/* --- reports --- */

static void a_step_backwards_is_ignored_and_counted(void **state)
{
    struct rig rig = rig_with_four((uint32_t[]){2, 2, 2, 2}, (double[]){0.1, 0.2, 0.3, 0.4});
    rig_report(&rig, 1, 1, 99); /* a report of step 10 after a report of step 20 */
    assert_int_equal(scheduler_totals(rig.scheduler).reports_ignored, 1);
    assert_int_equal(rig_view(&rig, 1).rung, 2);
    rig_submit(&rig, 5, 1, 1);
    rig_expect(&rig, "rest 4");
    scheduler_destroy(rig.scheduler);
}

static void hold_and_quantum_follow_the_median_probe(void **state)
{
    struct rig rig = rig_with((struct scheduler_options){.slots = 8});
    assert_true(scheduler_totals(rig.scheduler).hold_ns == 60 * RIG_S);
    for (uint32_t id = 1; id <= 3; id++)
        rig_submit(&rig, id, 1, 1);
    for (uint32_t id = 1; id <= 3; id++) {
        rig_wait(&rig, 30);
        rig_report(&rig, id, 1, 0.5);
    }
    /* the hold time is the median of 30, 60 and 90 */
    assert_true(scheduler_totals(rig.scheduler).hold_ns == 60 * RIG_S);
    assert_true(scheduler_totals(rig.scheduler).quantum_ns == 20 * RIG_S);
    for (uint32_t id = 4; id <= 7; id++) {
        rig_submit(&rig, id, 1, 1);
        rig_wait(&rig, 1000);
        rig_report(&rig, id, 1, 0.5);
    }
    assert_true(scheduler_totals(rig.scheduler).hold_ns == 120 * RIG_S);
    scheduler_destroy(rig.scheduler);
}

/* --- F10: lanes --- */

static void lanes_widen_before_workers_and_narrow_after(void **state)
{
    struct rig rig = rig_with_two_running();
    rig_submit(&rig, 3, 1, 1);
    rig_expect(&rig, "leave 1.1");
    rig_out(&rig, 1, 1);
    rig_expect(&rig, "lanes 1=1, lanes 3=1, start 3.0 @1");
    scheduler_destroy(rig.scheduler);
}

int main(void)
{
    static const struct CMUnitTest cases[] = {
        cmocka_unit_test(a_lone_job_grows_to_its_maximum),
        cmocka_unit_test(free_slots_go_one_by_one_to_the_largest_gain),
        cmocka_unit_test(no_job_grows_on_slots_of_announced_jobs),
        cmocka_unit_test(slots_of_announced_jobs_that_do_not_come_are_given_away),
        cmocka_unit_test(the_slots_of_an_ended_job_go_to_the_queue_first),
        cmocka_unit_test(growth_that_costs_more_than_it_brings_is_left_out),
        cmocka_unit_test(growth_below_half_of_its_promise_is_undone_until_the_speed_drifts),
        cmocka_unit_test(an_arrival_takes_the_worker_whose_job_loses_least),
        cmocka_unit_test(a_leaving_worker_gets_one_request),
        cmocka_unit_test(a_probing_job_gives_up_only_the_workers_that_it_gained),
        cmocka_unit_test(a_probing_job_grows_while_others_rest),
        cmocka_unit_test(a_held_job_gives_no_worker),
        cmocka_unit_test(the_lowest_rung_rests_first_then_the_worst_report),
        cmocka_unit_test(a_standing_orders_rests_without_a_report),
        cmocka_unit_test(a_report_that_is_no_number_ranks_last),
        cmocka_unit_test(a_job_does_not_rest_within_its_quantum),
        cmocka_unit_test(probing_jobs_make_others_rest_up_to_three_quarters_of_the_site),
        cmocka_unit_test(the_highest_rung_wakes_first_then_the_best_report),
        cmocka_unit_test(an_overdue_rest_is_served_as_the_first_arrival),
        cmocka_unit_test(beyond_the_most_resting_jobs_a_rest_ends_the_processes),
        cmocka_unit_test(an_ordered_rest_lasts_until_its_order),
        cmocka_unit_test(eps_alone_never_rests_a_job),
        cmocka_unit_test(a_silent_trial_counts_as_running_after_ten_median_probes),
        cmocka_unit_test(without_a_probe_silence_lasts_twenty_minutes),
        cmocka_unit_test(the_lowest_tenant_is_served_first_and_the_highest_gives),
        cmocka_unit_test(a_gang_gathers_the_slots_that_come_free),
        cmocka_unit_test(a_gang_makes_room_all_or_nothing),
        cmocka_unit_test(a_stage_neither_grows_nor_shrinks_nor_rests),
        cmocka_unit_test(an_impossible_job_is_refused_and_changes_nothing),
        cmocka_unit_test(a_step_backwards_is_ignored_and_counted),
        cmocka_unit_test(hold_and_quantum_follow_the_median_probe),
        cmocka_unit_test(lanes_widen_before_workers_and_narrow_after),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
