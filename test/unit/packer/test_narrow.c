/* Tests trials of a job on fewer lanes, and the results of these trials (RULES.md of packer,
 * R10). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "packer/profile/narrow.h"
#include "packer/profile/profile.h"

#define MS UINT64_C(1000000)
#define LIMIT 50000

/* Searches the number of lanes of a job that is slower on fewer than `needs` lanes. Returns the
 * number of trials. */
static int seek(struct narrow *n, uint32_t lanes, uint32_t needs)
{
    int tries = 0;
    narrow_begin(n, lanes);
    for (uint32_t next; (next = narrow_next(n)) > 0; tries++) {
        assert_true(next > n->few && next < n->enough);
        bool is_enough = narrow_add(n, 100 * MS, next < needs ? 120 * MS : 101 * MS, LIMIT);
        assert_int_equal(is_enough, next >= needs);
    }
    return tries;
}

static void the_smallest_sufficient_number_is_found_by_halving(void **state)
{
    struct narrow n = {0};
    assert_int_equal(narrow_next(&n), 0);
    for (uint32_t lanes = 1; lanes <= 64; lanes++)
        for (uint32_t needs = 1; needs <= lanes; needs++) {
            assert_in_range(seek(&n, lanes, needs), 0, 6);
            assert_int_equal(n.enough, needs);
            assert_int_equal(n.few, needs - 1);
            assert_int_equal(n.spent_ppm > 0, needs < lanes);
        }
}

static void fewer_lanes_may_cost_a_part_of_the_loss_limit(void **state)
{
    struct narrow n;
    narrow_begin(&n, 2);
    /* the trial is 1.5 % slower, so the loss is 1.48 %, and 1.5 % are allowed */
    assert_true(narrow_add(&n, 1000 * MS, 1015 * MS, LIMIT));
    assert_in_range(n.spent_ppm, 14700, 14800);
    narrow_begin(&n, 2);
    assert_false(narrow_add(&n, 1000 * MS, 1016 * MS, LIMIT));
    assert_int_equal(n.spent_ppm, 0);
    narrow_begin(&n, 2);
    assert_true(narrow_add(&n, 100 * MS, 90 * MS, LIMIT));
    assert_int_equal(n.spent_ppm, 0);
}

/* --- in the profile --- */

static enum profile_news run(struct profile *p, int samples, uint32_t lanes, uint64_t period_ns,
                             bool is_alone)
{
    enum profile_news last = PROFILE_NOTHING;
    struct profile_sample sample = {.rounds = 10,
                                    .elapsed_ns = 10 * period_ns,
                                    .busiest_ns = 8 * MS / lanes,
                                    .lanes_ns = 8 * MS,
                                    .span_ns = 30 * MS,
                                    .burst_ns = 4 * MS / lanes,
                                    .lanes = lanes,
                                    .is_alone = is_alone,
                                    .loss_limit_ppm = LIMIT};
    for (int i = 0; i < samples; i++) {
        enum profile_news news = profile_add(p, &sample);
        if (news == PROFILE_NOTHING)
            continue;
        last = news;
        profile_use(p);
    }
    return last;
}

static void the_fullest_of_enough_lanes_adds_no_cost(void **state)
{
    struct profile p = {0};
    assert_int_equal(run(&p, 12, 8, 100 * MS, true), PROFILE_MEASURED);
    assert_int_equal(narrow_next(&p.narrow), 4);
    assert_int_equal(run(&p, 5, 4, 101 * MS, true), PROFILE_NARROWED);
    assert_int_equal(narrow_next(&p.narrow), 2);
    assert_int_equal(profile_known(&p).busiest_ns, 2 * MS);
    assert_int_equal(profile_known(&p).burst_ns, MS);
    assert_int_equal(profile_known(&p).period_ns, 100 * MS);
    assert_in_range(profile_loss_ppm(&p), 9000, 10000);
    assert_int_equal(run(&p, 5, 2, 110 * MS, true), PROFILE_NARROWED);
    assert_int_equal(narrow_next(&p.narrow), 3);
    assert_int_equal(profile_known(&p).busiest_ns, 2 * MS);
    assert_int_equal(run(&p, 5, 3, 104 * MS, true), PROFILE_NARROWED);
    assert_int_equal(narrow_next(&p.narrow), 0);
    assert_int_equal(p.narrow.enough, 4);
    assert_int_equal(run(&p, 9, 4, 101 * MS, true), PROFILE_NOTHING);
}

static void no_job_is_judged_beside_others_or_by_few_rounds(void **state)
{
    struct profile p = {0};
    run(&p, 12, 8, 100 * MS, true);
    assert_int_equal(run(&p, 9, 4, 101 * MS, false), PROFILE_NOTHING);
    assert_int_equal(run(&p, 9, 5, 101 * MS, true), PROFILE_NOTHING);
    assert_int_equal(run(&p, 4, 4, 101 * MS, true), PROFILE_NOTHING);
    assert_int_equal(p.narrow.enough, 8);
    assert_int_equal(run(&p, 1, 4, 101 * MS, true), PROFILE_NARROWED);
}

static void another_job_under_its_name_is_sought_anew(void **state)
{
    struct profile p = {0};
    run(&p, 12, 8, 100 * MS, true);
    run(&p, 5, 4, 101 * MS, true);
    run(&p, 12, 2, 50 * MS, true);
    assert_int_equal(p.narrow.enough, 2);
    assert_int_equal(p.narrow.few, 0);
    assert_int_equal(profile_known(&p).busiest_ns, 4 * MS);
    run(&p, 12, 8, 50 * MS, true);
    assert_int_equal(p.narrow.enough, 8);
}

/* The limit does not apply to a trial: a long period in a trial does not mean that the job has
 * changed. */
static void a_trial_on_too_few_lanes_is_no_sign_of_another_job(void **state)
{
    struct profile p = {0};
    struct profile_sample slow = {.rounds = 1,
                                  .elapsed_ns = 2200 * MS,
                                  .busiest_ns = 2 * MS,
                                  .lanes_ns = 8 * MS,
                                  .lanes = 4,
                                  .is_alone = true,
                                  .loss_limit_ppm = LIMIT};
    run(&p, 12, 8, 1500 * MS, true);
    for (int i = 0; i < PROFILE_TRIED_ROUNDS + 50; i++)
        profile_add(&p, &slow);
    assert_int_equal(p.narrow.few, 4);
    assert_int_equal(p.narrow.enough, 8);
    assert_int_equal(p.alone.period_ns, 1500 * MS);
    assert_in_range(profile_loss_ppm(&p), 318000, 319000);
}

/* The job runs on the smallest sufficient number of lanes, and the cost of this number is known. A
 * new period therefore means that the job has changed. */
static void on_the_sufficient_lanes_a_new_period_replaces_the_known_one(void **state)
{
    struct profile p = {0};
    run(&p, 12, 2, 100 * MS, true);
    run(&p, 5, 1, 101 * MS, true);
    assert_int_equal(p.narrow.enough, 1);
    uint32_t spent_ppm = p.narrow.spent_ppm;
    static const uint64_t periods[] = {110 * MS, 40 * MS, 400 * MS};
    for (size_t i = 0; i < 3; i++) {
        run(&p, 200, 1, periods[i], true);
        assert_in_range(profile_loss_ppm(&p), spent_ppm - 10, spent_ppm + 10);
        assert_in_range(profile_known(&p).period_ns, periods[i] * 98 / 100, periods[i]);
    }
    assert_int_equal(p.narrow.spent_ppm, spent_ppm);
    run(&p, 40, 1, 430 * MS, false); /* beside other jobs a longer period counts as a loss */
    assert_in_range(profile_loss_ppm(&p), 75000, 85000);
}

static void a_stricter_limit_undoes_the_trial_of_a_looser_one(void **state)
{
    struct profile p = {0};
    struct narrow known = {.few = 1, .enough = 2, .spent_ppm = 12000};
    struct profile_sample sample = {.rounds = 30,
                                    .elapsed_ns = 3000 * MS,
                                    .busiest_ns = 4 * MS,
                                    .lanes_ns = 8 * MS,
                                    .lanes = 2,
                                    .is_alone = true,
                                    .loss_limit_ppm = 10000};
    profile_recall(&p, &(struct profile_times){99 * MS, 4 * MS, 8 * MS}, true, 8, &known);
    for (int i = 0; i < 6; i++)
        profile_add(&p, &sample);
    assert_int_equal(p.narrow.few, 2);
    assert_int_equal(p.narrow.enough, 8);
    assert_int_equal(p.narrow.spent_ppm, 0);
}

static void a_recalled_job_knows_the_number_of_lanes_that_it_needs(void **state)
{
    struct profile p = {0};
    struct narrow known = {.few = 2, .enough = 3, .spent_ppm = 9000};
    profile_recall(&p, &(struct profile_times){100 * MS, 2 * MS, 4 * MS}, true, 8, &known);
    assert_int_equal(narrow_next(&p.narrow), 0);
    assert_int_equal(p.narrow.spent_ppm, 9000);
    p = (struct profile){0};
    profile_recall(&p, &(struct profile_times){100 * MS, 2 * MS, 4 * MS}, false, 8, &known);
    assert_int_equal(p.narrow.enough, 0);
}

int main(void)
{
    static const struct CMUnitTest cases[] = {
        cmocka_unit_test(the_smallest_sufficient_number_is_found_by_halving),
        cmocka_unit_test(fewer_lanes_may_cost_a_part_of_the_loss_limit),
        cmocka_unit_test(the_fullest_of_enough_lanes_adds_no_cost),
        cmocka_unit_test(no_job_is_judged_beside_others_or_by_few_rounds),
        cmocka_unit_test(another_job_under_its_name_is_sought_anew),
        cmocka_unit_test(a_trial_on_too_few_lanes_is_no_sign_of_another_job),
        cmocka_unit_test(on_the_sufficient_lanes_a_new_period_replaces_the_known_one),
        cmocka_unit_test(a_stricter_limit_undoes_the_trial_of_a_looser_one),
        cmocka_unit_test(a_recalled_job_knows_the_number_of_lanes_that_it_needs),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
