/* Tests how profiles are made from samples (RULES.md of packer, R1 to R5). A seed determines the
 * noise. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "packer/profile/profile.h"

#include <stdlib.h>

#define MS UINT64_C(1000000)
#define HOUR (3600000 * MS)

static enum profile_news take(struct profile *p, uint64_t rounds, uint64_t period_ns,
                              uint64_t lane_ns, bool is_alone)
{
    struct profile_sample sample = {.rounds = rounds,
                                    .elapsed_ns = rounds * period_ns,
                                    .busiest_ns = lane_ns / 2,
                                    .lanes_ns = lane_ns,
                                    .is_alone = is_alone};
    return profile_add(p, &sample);
}

/* Runs ten rounds for each sample. Returns the last result other than PROFILE_NOTHING. */
static enum profile_news run(struct profile *p, int samples, uint64_t period_ns, uint64_t lane_ns,
                             bool is_alone)
{
    enum profile_news last = PROFILE_NOTHING;
    for (int i = 0; i < samples; i++) {
        enum profile_news news = take(p, 10, period_ns, lane_ns, is_alone);
        if (news != PROFILE_NOTHING) {
            last = news;
            profile_use(p);
        }
    }
    return last;
}

static void the_first_rounds_do_not_count(void **state)
{
    struct profile p = {0};
    assert_int_equal(take(&p, 5, 900 * MS, 300 * MS, true), PROFILE_NOTHING);
    assert_int_equal(run(&p, 5, 100 * MS, 4 * MS, true), PROFILE_MEASURED);
    assert_int_equal(profile_known(&p).period_ns, 100 * MS);
    assert_int_equal(profile_known(&p).lanes_ns, 4 * MS);
    assert_int_equal(profile_known(&p).busiest_ns, 2 * MS);
}

static void few_rounds_or_few_samples_give_no_verdict(void **state)
{
    struct profile p = {0};
    assert_int_equal(take(&p, 10, 100 * MS, MS, true), PROFILE_NOTHING);
    assert_int_equal(take(&p, 1000, 100 * MS, MS, true), PROFILE_NOTHING);
    assert_int_equal(take(&p, 1000, 100 * MS, MS, true), PROFILE_NOTHING);
    assert_int_equal(profile_known(&p).period_ns, 0);
    assert_int_equal(take(&p, 1000, 100 * MS, MS, true), PROFILE_MEASURED);
    p = (struct profile){0};
    for (int i = 0; i < 24; i++)
        assert_int_equal(take(&p, 1, 100 * MS, MS, true), PROFILE_NOTHING);
    assert_int_equal(take(&p, 1, 100 * MS, MS, true), PROFILE_MEASURED);
}

static void noise_is_taken_out(void **state)
{
    struct profile p = {0};
    srandom(7);
    for (int i = 0; i < 300; i++) {
        uint64_t noise = (uint64_t)random() % (20 * MS);
        enum profile_news news = take(&p, 10, 90 * MS + noise, 4 * MS + noise / 20, true);
        assert_true(news != PROFILE_DRIFTED);
        if (news == PROFILE_MEASURED)
            profile_use(&p);
    }
    assert_in_range(profile_known(&p).period_ns, 98 * MS, 102 * MS);
    assert_in_range(profile_known(&p).lanes_ns, 4 * MS + 400000, 4 * MS + 600000);
}

static void a_stall_changes_no_result(void **state)
{
    struct profile p = {0};
    run(&p, 12, 100 * MS, 4 * MS, true);
    for (int i = 0; i < 4; i++)
        assert_int_equal(take(&p, 1, 5000 * MS, 40 * MS, true), PROFILE_NOTHING);
    assert_int_equal(profile_known(&p).period_ns, 100 * MS);
    assert_int_equal(profile_known(&p).lanes_ns, 4 * MS);
}

static void a_job_that_stops_for_an_hour_is_the_same_afterwards(void **state)
{
    struct profile p = {0};
    run(&p, 12, 100 * MS, 4 * MS, true);
    assert_int_equal(take(&p, 3, HOUR / 3, 4 * MS, true), PROFILE_NOTHING);
    assert_int_equal(run(&p, 50, 100 * MS, 4 * MS, true), PROFILE_NOTHING);
    assert_int_equal(profile_known(&p).period_ns, 100 * MS);
}

static void a_lasting_change_is_a_drift_and_is_reported_once(void **state)
{
    struct profile p = {0};
    run(&p, 12, 100 * MS, 4 * MS, true);
    assert_int_equal(run(&p, 100, 110 * MS, 4 * MS, true), PROFILE_NOTHING);
    assert_int_equal(run(&p, 60, 200 * MS, 4 * MS, true), PROFILE_DRIFTED);
    assert_in_range(profile_known(&p).period_ns, 150 * MS, 201 * MS);
    run(&p, 200, 200 * MS, 4 * MS, true);
    assert_int_equal(run(&p, 100, 200 * MS, 4 * MS, true), PROFILE_NOTHING);
    assert_int_equal(run(&p, 60, 200 * MS, 12 * MS, true), PROFILE_DRIFTED);
}

static void lane_time_that_slows_no_job_is_no_drift(void **state)
{
    struct profile p = {0};
    run(&p, 12, 100 * MS, MS / 10, true);
    assert_int_equal(run(&p, 60, 100 * MS, MS / 2, true), PROFILE_NOTHING);
}

static void the_loss_is_the_cost_of_other_jobs(void **state)
{
    struct profile p = {0};
    run(&p, 12, 100 * MS, 4 * MS, true);
    assert_int_equal(profile_loss_ppm(&p), 0);
    run(&p, 12, 125 * MS, 4 * MS, false);
    assert_in_range(profile_loss_ppm(&p), 199000, 200000);
    assert_int_equal(profile_known(&p).period_ns, 100 * MS);
    run(&p, 12, 100 * MS, 4 * MS, true);
    assert_int_equal(profile_loss_ppm(&p), 0);
}

static void the_busiest_lane_keeps_its_part_of_the_lane_time(void **state)
{
    struct profile p = {0};
    run(&p, 12, 100 * MS, 4 * MS, true);
    run(&p, 12, 110 * MS, 5 * MS, false);
    assert_int_equal(profile_known(&p).lanes_ns, 5 * MS);
    assert_int_equal(profile_known(&p).busiest_ns, 5 * MS / 2);
}

static enum profile_news end_rounds(struct profile *p, uint64_t period_ns, bool is_alone)
{
    struct profile_sample sample = {.rounds = 10,
                                    .elapsed_ns = 10 * period_ns,
                                    .busiest_ns = 2 * MS,
                                    .lanes_ns = is_alone ? 4 * MS : 8 * MS,
                                    .span_ns = 60 * MS,
                                    .burst_ns = MS,
                                    .slack_ns = 5 * MS,
                                    .is_alone = is_alone};
    enum profile_news news = PROFILE_NOTHING;
    for (int i = 0; i < 40; i++)
        news = profile_add(p, &sample);
    return news;
}

static void how_rounds_end_is_known_from_alone_only(void **state)
{
    struct profile p = {0};
    end_rounds(&p, 100 * MS, false);
    assert_int_equal(profile_known(&p).span_ns, 0);
    end_rounds(&p, 100 * MS, true);
    assert_int_equal(profile_known(&p).span_ns, 60 * MS);
    assert_int_equal(profile_known(&p).burst_ns, MS);
    assert_int_equal(profile_known(&p).slack_ns, 5 * MS);
    end_rounds(&p, 120 * MS, false); /* the lane time is doubled, so the burst is also doubled */
    assert_in_range(profile_known(&p).burst_ns, 2 * MS - MS / 10, 2 * MS + MS / 10);
    assert_int_equal(profile_known(&p).span_ns, 60 * MS);
    /* the former period was wrong, so the times of the ends of rounds are dropped */
    end_rounds(&p, 50 * MS, false);
    assert_int_equal(profile_known(&p).span_ns, 0);
    assert_int_equal(profile_known(&p).burst_ns, 0);
}

static void a_job_faster_beside_others_counts_as_unmeasured(void **state)
{
    struct profile p = {0};
    profile_recall(&p, &(struct profile_times){200 * MS, 4 * MS, 8 * MS}, true, 4,
                   &(struct narrow){0});
    assert_int_equal(profile_known(&p).period_ns, 200 * MS);
    assert_int_equal(run(&p, 40, 100 * MS, 8 * MS, false), PROFILE_DRIFTED);
    assert_int_equal(profile_known(&p).period_ns, 100 * MS);
    assert_int_equal(profile_loss_ppm(&p), 0);
    /* the stored period was not measured without other jobs either */
    assert_false(profile_knows_alone(&p));
}

static void a_job_never_alone_has_the_values_of_its_present_lanes(void **state)
{
    struct profile p = {0};
    assert_int_equal(run(&p, 12, 100 * MS, 4 * MS, false), PROFILE_MEASURED);
    assert_int_equal(profile_known(&p).period_ns, 100 * MS);
    assert_int_equal(profile_loss_ppm(&p), 0);
    assert_false(profile_knows_alone(&p));
    assert_int_equal(run(&p, 3, 90 * MS, 4 * MS, true), PROFILE_MEASURED);
    assert_true(profile_knows_alone(&p));
    assert_int_equal(profile_known(&p).period_ns, 90 * MS);
}

static void stored_values_beside_others_are_a_hint_and_never_alone(void **state)
{
    struct profile p = {0};
    profile_recall(&p, &(struct profile_times){100 * MS, 2 * MS, 4 * MS, 60 * MS, MS, MS}, false, 4,
                   &(struct narrow){0});
    assert_int_equal(profile_known(&p).period_ns, 100 * MS);
    assert_int_equal(profile_known(&p).span_ns, 0);
    assert_false(profile_knows_alone(&p));
    run(&p, 12, 150 * MS, 4 * MS, false);
    /* The current times replace the stored times. */
    assert_int_equal(profile_known(&p).period_ns, 150 * MS);
    assert_int_equal(profile_loss_ppm(&p), 0);
    assert_int_equal(run(&p, 3, 80 * MS, 4 * MS, true), PROFILE_MEASURED);
    assert_int_equal(profile_known(&p).period_ns, 80 * MS);
    run(&p, 12, 100 * MS, 4 * MS, false);
    assert_in_range(profile_loss_ppm(&p), 199000, 200000);
}

static void rounds_as_long_as_the_time_between_looks_are_measured_as_others(void **state)
{
    struct profile p = {0};
    for (int i = 0; i < 25; i++)
        take(&p, 1, 1000 * MS, 4 * MS, true);
    assert_int_equal(profile_known(&p).period_ns, 1000 * MS);
    assert_int_equal(profile_known(&p).lanes_ns, 4 * MS);
}

static void stored_values_hold_until_samples_differ(void **state)
{
    struct profile p = {0};
    profile_recall(&p, &(struct profile_times){100 * MS, 2 * MS, 4 * MS}, true, 4,
                   &(struct narrow){0});
    assert_int_equal(run(&p, 30, 105 * MS, 4 * MS, true), PROFILE_NOTHING);
    p = (struct profile){0};
    profile_recall(&p, &(struct profile_times){100 * MS, 2 * MS, 4 * MS}, true, 4,
                   &(struct narrow){0});
    assert_int_equal(run(&p, 30, 300 * MS, 4 * MS, true), PROFILE_DRIFTED);
}

/* Like run(), alone on `lanes` lanes. */
static enum profile_news run_on(struct profile *p, int samples, uint32_t lanes, uint64_t period_ns)
{
    enum profile_news last = PROFILE_NOTHING;
    struct profile_sample sample = {.rounds = 10,
                                    .elapsed_ns = 10 * period_ns,
                                    .busiest_ns = 8 * MS / lanes,
                                    .lanes_ns = 8 * MS,
                                    .lanes = lanes,
                                    .is_alone = true};
    for (int i = 0; i < samples; i++) {
        enum profile_news news = profile_add(p, &sample);
        if (news != PROFILE_NOTHING) {
            last = news;
            profile_use(p);
        }
    }
    return last;
}

static void the_cost_of_fewer_lanes_is_a_loss(void **state)
{
    struct profile p = {0};
    run_on(&p, 12, 4, 100 * MS);
    assert_int_equal(run_on(&p, 12, 2, 102 * MS), PROFILE_NOTHING);
    assert_int_equal(run_on(&p, 12, 1, 106 * MS), PROFILE_NOTHING);
    assert_int_equal(profile_known(&p).period_ns, 100 * MS);
    assert_int_equal(profile_known(&p).busiest_ns, 2 * MS);
    assert_in_range(profile_loss_ppm(&p), 56000, 57000);
    /* back on the former lanes, the period without other jobs is measured again */
    run_on(&p, 12, 4, 104 * MS);
    assert_int_equal(profile_known(&p).period_ns, 104 * MS);
    assert_int_equal(profile_loss_ppm(&p), 0);
}

static void a_change_on_fewer_lanes_is_measured_there(void **state)
{
    struct profile p = {0};
    run_on(&p, 12, 4, 100 * MS);
    run_on(&p, 12, 1, 106 * MS);
    assert_int_equal(run_on(&p, 40, 1, 200 * MS), PROFILE_DRIFTED);
    assert_in_range(profile_known(&p).period_ns, 195 * MS, 200 * MS);
    assert_int_equal(profile_loss_ppm(&p), 0);
}

static void a_change_beside_others_makes_a_job_unmeasured(void **state)
{
    struct profile p = {0};
    run(&p, 12, 60 * MS, 4 * MS, true);
    run(&p, 12, 61 * MS, 4 * MS, false);
    assert_int_equal(run(&p, PROFILE_UNEXPLAINED_SAMPLES - 1, 120 * MS, 4 * MS, false),
                     /* no change is reported yet, because other processes may use the machine for a
                      * while */
                     PROFILE_NOTHING);
    assert_int_equal(run(&p, 60, 121 * MS, 4 * MS, false), PROFILE_DRIFTED);
    assert_false(profile_knows_alone(&p));
    assert_int_equal(profile_loss_ppm(&p), 0);
    assert_in_range(profile_known(&p).period_ns, 120 * MS, 121 * MS);
    assert_int_equal(run(&p, 12, 118 * MS, 4 * MS, true), PROFILE_MEASURED);
    run(&p, 12, 121 * MS, 4 * MS, false);
    assert_in_range(profile_loss_ppm(&p), 20000, 30000);
}

static void longer_rounds_on_a_full_lane_are_no_sign_of_another_job(void **state)
{
    struct profile p = {0};
    run(&p, 12, 100 * MS, 40 * MS, true);
    run(&p, 40, 150 * MS, 140 * MS, false); /* its busiest lane needs 50 ms more */
    assert_true(profile_knows_alone(&p));
    assert_int_equal(profile_loss_ppm(&p), 333333);
}

static void samples_that_make_no_sense_are_passed_over(void **state)
{
    struct profile p = {0};
    run(&p, 12, 100 * MS, 4 * MS, true);
    assert_int_equal(take(&p, 0, 100 * MS, 4 * MS, true), PROFILE_NOTHING);
    struct profile_sample never = {.rounds = 1, .elapsed_ns = UINT64_MAX, .is_alone = true};
    for (int i = 0; i < 20; i++)
        assert_int_equal(profile_add(&p, &never), PROFILE_NOTHING);
    assert_int_equal(profile_known(&p).period_ns, 100 * MS);
}

int main(void)
{
    static const struct CMUnitTest cases[] = {
        cmocka_unit_test(the_first_rounds_do_not_count),
        cmocka_unit_test(few_rounds_or_few_samples_give_no_verdict),
        cmocka_unit_test(noise_is_taken_out),
        cmocka_unit_test(a_stall_changes_no_result),
        cmocka_unit_test(a_job_that_stops_for_an_hour_is_the_same_afterwards),
        cmocka_unit_test(a_lasting_change_is_a_drift_and_is_reported_once),
        cmocka_unit_test(lane_time_that_slows_no_job_is_no_drift),
        cmocka_unit_test(the_loss_is_the_cost_of_other_jobs),
        cmocka_unit_test(the_busiest_lane_keeps_its_part_of_the_lane_time),
        cmocka_unit_test(how_rounds_end_is_known_from_alone_only),
        cmocka_unit_test(a_job_faster_beside_others_counts_as_unmeasured),
        cmocka_unit_test(a_job_never_alone_has_the_values_of_its_present_lanes),
        cmocka_unit_test(stored_values_beside_others_are_a_hint_and_never_alone),
        cmocka_unit_test(rounds_as_long_as_the_time_between_looks_are_measured_as_others),
        cmocka_unit_test(stored_values_hold_until_samples_differ),
        cmocka_unit_test(the_cost_of_fewer_lanes_is_a_loss),
        cmocka_unit_test(a_change_on_fewer_lanes_is_measured_there),
        cmocka_unit_test(a_change_beside_others_makes_a_job_unmeasured),
        cmocka_unit_test(longer_rounds_on_a_full_lane_are_no_sign_of_another_job),
        cmocka_unit_test(samples_that_make_no_sense_are_passed_over),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
