/* Compares the rules of loss with formulas and with the plain sum. Also compares the largest lane
 * time that a rule permits with the predicted losses. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "packer/baseline/baseline.h"
#include "packer/loss/loss.h"
#include "packer/loss/loss_nodes.h"

#define JOBS_MAX 1000
#define SECOND UINT64_C(1000000000)

static const struct loss_rule *const all_rules[] = {&loss_shared, &loss_rate, &loss_cycle};

/* splitmix64 */
static uint64_t draw(uint64_t *seed, uint64_t below)
{
    uint64_t z = *seed += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % below;
}

static struct packer_resident share(double u)
{
    return (struct packer_resident){.lane_ns = (uint64_t)(u * 1e9 + 0.5),
                                    .timing = {.period_ns = SECOND}};
}

static struct packer_resident run(uint64_t lane_ns, uint64_t period_ns)
{
    return (struct packer_resident){.lane_ns = lane_ns, .timing = {.period_ns = period_ns}};
}

static void assert_near(double value, double wanted, double within)
{
    if (!(fabs(value - wanted) <= within))
        fail_msg("%.17g is not within %g of %.17g", value, within, wanted);
}

/* Computes the sum of k! c_k, exactly as the rule is written. The c_k are the coefficients of the
 * product over all jobs except one. `scale` prevents overflow, and must be equal for compared
 * sums. */
static long double plain_sum(const double *shares, size_t count, size_t without)
{
    long double *a = calloc(count + 2, sizeof(*a)), sum = 0;
    size_t degree = 0;

    a[0] = 1;
    for (size_t j = 0; j < count; j++) {
        if (j == without)
            continue;
        degree++;
        for (size_t k = degree; k > 0; k--)
            a[k] = (1 - (long double)shares[j]) * a[k] + (long double)shares[j] * k * a[k - 1];
        a[0] *= 1 - (long double)shares[j];
    }
    for (size_t k = 0; k <= degree; k++)
        sum += a[k];
    free(a);
    return sum;
}

static void the_nodes_integrate_powers_to_factorials(void **state)
{
    long double factorial = 1;

    for (int k = 0; k < 2 * LOSS_NODES; k++) {
        long double sum = 0;

        factorial *= k ? k : 1;
        for (int i = 0; i < LOSS_NODES; i++)
            sum += loss_weights[i] * powl(loss_nodes[i], k);
        assert_near((double)(sum / factorial), 1, 1e-12);
    }
}

static void two_jobs_both_lose_the_product_of_their_shares(void **state)
{
    for (double u = 0.01; u < 1; u += 0.07)
        for (double v = 0.01; v < 1; v += 0.07) {
            struct packer_resident jobs[] = {share(u), share(v)};
            double losses[2];

            loss_shared.losses(jobs, 2, losses);
            assert_near(losses[0], u * v / (1 + u * v), 1e-9);
            assert_near(losses[1], u * v / (1 + u * v), 1e-9);
        }
}

static double loss_of_equals(size_t count, double sum)
{
    static struct packer_resident jobs[JOBS_MAX];
    static double losses[JOBS_MAX];

    for (size_t i = 0; i < count; i++)
        jobs[i] = share(sum / (double)count);
    loss_shared.losses(jobs, count, losses);
    return losses[count - 1];
}

static void the_largest_load_of_equal_jobs_is_that_of_the_table(void **state)
{
    static const double limits[] = {0.02, 0.05, 0.10};
    static const size_t counts[] = {2, 4, 8, 16, 32, 64};
    static const double table[3][6] = {{0.29, 0.31, 0.37, 0.47, 0.58, 0.69},
                                       {0.46, 0.48, 0.56, 0.67, 0.78, 0.88},
                                       {0.67, 0.68, 0.76, 0.87, 0.97, 1.04}};

    for (size_t l = 0; l < 3; l++)
        for (size_t c = 0; c < 6; c++) {
            double low = 0, high = 2;

            while (high - low > 1e-6) {
                double middle = (low + high) / 2;

                *(loss_of_equals(counts[c], middle) <= limits[l] ? &low : &high) = middle;
            }
            assert_near(low, table[l][c], 0.0051);
        }
}

static void check_against_plain_sum(size_t count, double sum, uint64_t *seed)
{
    static struct packer_resident jobs[JOBS_MAX];
    static double losses[JOBS_MAX], shares[JOBS_MAX];
    double total = 0;

    for (size_t i = 0; i < count; i++)
        total += shares[i] = 1 + (double)draw(seed, 1000);
    for (size_t i = 0; i < count; i++) {
        jobs[i] = share(fmin(shares[i] * sum / total, 0.95));
        shares[i] = (double)jobs[i].lane_ns / 1e9;
    }
    loss_shared.losses(jobs, count, losses);
    for (size_t i = 0; i < count; i += 1 + count / 7) {
        long double all = plain_sum(shares, count, count), others = plain_sum(shares, count, i);

        assert_near(losses[i], (double)(1 - others / all), 1e-9);
    }
}

static void the_sums_are_exact_to_a_hundred_and_fifty_jobs_at_any_load(void **state)
{
    uint64_t seed = (uint64_t)time(NULL);

    print_message("# seed %" PRIu64 "\n", seed);
    for (size_t count = 1; count <= 150; count += 1 + count / 4)
        for (double sum = 0.1; sum < 1.05 * (double)count; sum *= 1.7)
            check_against_plain_sum(count, sum, &seed);
    check_against_plain_sum(150, 140, &seed);
}

static void the_rules_hold_up_to_a_full_lane(void **state)
{
    uint64_t seed = (uint64_t)time(NULL);

    print_message("# seed %" PRIu64 "\n", seed);
    for (size_t count = 200; count <= JOBS_MAX; count += 200)
        for (double sum = 0.1; sum <= 1.11; sum += 0.2)
            check_against_plain_sum(count, sum, &seed);
}

static void an_overfull_lane_loses_all_and_accepts_no_job(void **state)
{
    static struct packer_resident jobs[JOBS_MAX];
    static double losses[JOBS_MAX];
    struct packer_timing job = {.period_ns = SECOND};

    for (size_t i = 0; i < JOBS_MAX; i++)
        jobs[i] = share(1);
    loss_shared.losses(jobs, JOBS_MAX, losses);
    assert_near(losses[0], 1, 0);
    for (size_t i = 0; i < 3; i++)
        assert_true(all_rules[i]->room_ns(jobs, JOBS_MAX, &job) < 0);
}

static void a_job_alone_loses_nothing_within_its_period(void **state)
{
    struct packer_resident job = run(300, 300);
    double loss = 1;

    for (size_t i = 0; i < 3; i++) {
        all_rules[i]->losses(&job, 1, &loss);
        assert_near(loss, 0, 1e-12);
        assert_near(all_rules[i]->room_ns(NULL, 0, &job.timing), 300 / 0.95, 1e-6);
    }
    job.lane_ns = 400;
    for (size_t i = 0; i < 3; i++) {
        all_rules[i]->losses(&job, 1, &loss);
        assert_near(loss, 0.25, 1e-12);
    }
}

static void lane_time_beyond_the_measured_spread_lengthens_the_round(void **state)
{
    struct packer_resident job = run(150, 1000);
    double loss;

    job.timing.spread_ns = 50;
    assert_near(loss_alone_ns(&job.timing, 50), 1000, 0);
    assert_near(loss_alone_ns(&job.timing, 150), 1100, 0);
    assert_near(loss_share(&job), 150.0 / 1100, 1e-15);
    for (size_t i = 0; i < 3; i++) {
        all_rules[i]->losses(&job, 1, &loss);
        assert_near(loss, 1.0 / 11, 1e-12);
        assert_near(all_rules[i]->room_ns(NULL, 0, &job.timing), 50 + 1000 * 0.05 / 0.95, 1e-6);
    }
}

static void rate_looks_at_the_sum_alone(void **state)
{
    struct packer_resident jobs[] = {share(0.5), share(0.3), share(0.45)};
    struct packer_timing job = {.period_ns = 2 * SECOND};
    double losses[3];

    loss_rate.losses(jobs, 2, losses);
    assert_near(losses[0], 0, 0);
    loss_rate.losses(jobs, 3, losses);
    assert_near(losses[1], 1 - 1 / 1.25, 1e-12);
    assert_near(loss_rate.room_ns(jobs, 2, &job), 0.4e9, 1);
    assert_true(loss_rate.room_ns(jobs, 3, &job) < 0);
}

static void cycle_punishes_periods_that_do_not_divide(void **state)
{
    struct packer_resident even[] = {run(10, 100), run(10, 50)};
    struct packer_resident odd[] = {run(10, 100), run(10, 60)};
    struct packer_resident busy[] = {run(50, 100), run(40, 50)};
    struct packer_timing job = {.period_ns = 50};
    double losses[2];

    loss_cycle.losses(even, 2, losses);
    assert_near(losses[0], 0, 0);
    assert_near(losses[1], 0, 0);
    loss_cycle.losses(odd, 2, losses);
    assert_near(losses[0], 0, 0);
    assert_near(losses[1], 0.4, 1e-12); /* each cycle of 100 contains one round of 60 */
    /* in each cycle of 100 the lane is busy for 50 + 2 x 40 = 130 */
    loss_cycle.losses(busy, 2, losses);
    assert_near(losses[0], 1 - 100 / 130.0, 1e-12);
    assert_near(losses[1], 1 - 100 / 130.0, 1e-12);
    /* the lane is full if 10 + 2 x 10 + 2 x (new lane time) = 100 / 0.95 */
    assert_near(loss_cycle.room_ns(even, 2, &job), (100 / 0.95 - 30) / 2, 1e-6);
    job.period_ns = 70;
    /* each cycle of 100 contains one round of 70 */
    assert_true(loss_cycle.room_ns(even, 2, &job) < 0);
}

/* --- the room against the losses --- */

static size_t draw_jobs(struct packer_resident *jobs, uint64_t *seed)
{
    size_t count = draw(seed, 12);

    for (size_t i = 0; i <= count; i++) {
        uint64_t period_ns = 1000000 * (50 + draw(seed, 500));

        if (draw(seed, 2))
            period_ns = 100000000;
        jobs[i] = run(period_ns / 1000 * (1 + draw(seed, 100)), period_ns);
        jobs[i].timing.loss_limit_ppm = (uint32_t)(20000 * (1 + draw(seed, 6)));
        jobs[i].timing.spread_ns = draw(seed, 3) ? 0 : jobs[i].lane_ns / (1 + draw(seed, 2));
    }
    return count;
}

/* Returns whether all jobs are within their limits if the last job takes `lane_ns`. */
static bool all_hold(const struct loss_rule *rule, struct packer_resident *jobs, size_t others,
                     double lane_ns, double slack)
{
    double losses[16], margin = others > 0 ? rule->margin : 0;

    if (rule == &loss_rate && others > 0) {
        double sum = 0;

        jobs[others].lane_ns = (uint64_t)lane_ns;
        for (size_t i = 0; i <= others; i++)
            sum += loss_share(&jobs[i]);
        if (sum > 1 + slack)
            return false;
    }
    jobs[others].lane_ns = (uint64_t)lane_ns;
    rule->losses(jobs, others + 1, losses);
    for (size_t i = 0; i <= others; i++) {
        bool judged = i == others || rule != &loss_rate;

        if (judged && losses[i] + margin > loss_limit(&jobs[i].timing) + slack)
            return false;
    }
    return true;
}

static void the_room_is_the_most_that_keeps_every_limit(void **state)
{
    const struct loss_rule *rule = *state;
    uint64_t seed = (uint64_t)time(NULL);
    size_t open = 0;

    print_message("# seed %" PRIu64 "\n", seed);
    for (int i = 0; i < 2000; i++) {
        struct packer_resident jobs[16];
        size_t others = draw_jobs(jobs, &seed);
        double room_ns = rule->room_ns(jobs, others, &jobs[others].timing);

        if (room_ns < 0) {
            assert_false(all_hold(rule, jobs, others, 0, -1e-9));
            continue;
        }
        open++;
        assert_true(all_hold(rule, jobs, others, room_ns, 1e-6));
        assert_false(all_hold(rule, jobs, others, room_ns * 1.001 + 10, 0));
    }
    assert_true(open > 100);
}

static void the_strictest_limit_that_is_named_wins(void **state)
{
    assert_int_equal(packer_loss_limit_ppm(0, 0, 0), 50000);
    assert_int_equal(packer_loss_limit_ppm(80000, 0, 0), 80000);
    assert_int_equal(packer_loss_limit_ppm(80000, 20000, 0), 20000);
    assert_int_equal(packer_loss_limit_ppm(80000, 20000, 90000), 20000);
    assert_int_equal(packer_loss_limit_ppm(0, 0, 1), 1);
}

static void losses_are_predicted_by_the_named_policy(void **state)
{
    struct packer_resident jobs[] = {share(0.5), share(0.5), run(1, 0)};
    double losses[3] = {7, 7, 7};

    assert_int_equal(packer_losses("shared", jobs, 3, losses), -EINVAL);
    jobs[2].timing.period_ns = PACKER_PERIOD_NS_MAX + 1;
    assert_int_equal(packer_losses("shared", jobs, 3, losses), -EINVAL);
    assert_int_equal(packer_losses("least-loaded", jobs, 2, losses), -EINVAL);
    assert_int_equal(packer_losses(NULL, jobs, 2, losses), -EINVAL);
    assert_near(losses[0], 7, 0);
    assert_int_equal(packer_losses("shared", jobs, 2, losses), 0);
    assert_near(losses[0], 0.2, 1e-12);
    assert_int_equal(packer_losses("rate", jobs, 2, losses), 0);
    assert_near(losses[0], 0, 0);
}

/* --- predictions (L8): 10 ms beside 5 ms on the busiest lane, rounds of 100 ms --- */

#define MS UINT64_C(1000000)

static struct packer_resident ending(uint64_t lane_ns, uint64_t burst_ns, uint64_t span_ns,
                                     uint64_t slack_ns)
{
    return (struct packer_resident){.lane_ns = lane_ns,
                                    .timing = {.period_ns = 100 * MS,
                                               .spread_ns = 5 * MS,
                                               .span_ns = span_ns,
                                               .burst_ns = burst_ns,
                                               .slack_ns = slack_ns}};
}

static double predicted(const struct packer_resident *jobs, size_t count, size_t of)
{
    double losses[3];

    assert_in_range(count, 1, 3);
    assert_int_equal(packer_predict("shared", jobs, count, losses), 0);
    return losses[of];
}

static void a_job_as_it_was_measured_is_predicted_to_lose_nothing(void **state)
{
    struct packer_resident job = ending(5 * MS, 2 * MS, 60 * MS, 0);

    assert_near(predicted(&job, 1, 0), 0, 0);
}

static void alone_only_the_last_burst_makes_the_round_longer(void **state)
{
    struct packer_resident job = ending(10 * MS, 2 * MS, 60 * MS, 0);
    double counted;

    /* with twice the work, the last burst is 2 ms longer */
    assert_near(predicted(&job, 1, 0), 2.0 / 102, 1e-12);
    assert_int_equal(packer_losses("shared", &job, 1, &counted), 0);
    assert_near(counted, 5.0 / 105, 1e-12);
    /* the work on another lane ends later than the work on this lane; this is the difference */
    job.timing.slack_ns = 3 * MS / 2;
    assert_near(predicted(&job, 1, 0), 0.5 / 100.5, 1e-12);
    job.timing.slack_ns = 3 * MS;
    assert_near(predicted(&job, 1, 0), 0, 0);
}

static void more_work_than_its_time_runs_into_one_burst(void **state)
{
    struct packer_resident job = ending(90 * MS, MS / 10, 60 * MS, 0);

    assert_near(predicted(&job, 1, 0), 30.0 / 130, 1e-12);
}

/* Beside a job with u = 0.25 the work takes 1.25 times as long. This delays the round by 2 (1.25 *
 * 10/5 - 1) = 3 ms. */
static void others_draw_the_last_burst_out(void **state)
{
    struct packer_resident jobs[] = {ending(10 * MS, 2 * MS, 60 * MS, 0), share(0.25)};
    double counted[2];

    assert_near(predicted(jobs, 2, 0), 3.0 / 103, 1e-9);
    assert_int_equal(packer_losses("shared", jobs, 2, counted), 0);
    assert_near(predicted(jobs, 2, 1), counted[1], 0); /* the end of this job's rounds is unknown */
    assert_true(counted[0] > 3.0 / 103);
}

/* All work is in one burst, and no computation overlaps the work. The prediction equals the
 * prediction of rule `shared`, except for a term of the size of the squared loss. */
static void a_job_with_all_work_at_the_end_loses_as_the_rule_predicts(void **state)
{
    struct packer_resident jobs[] = {ending(5 * MS, 5 * MS, 5 * MS, 0), share(0.3)};
    double counted[2];

    assert_int_equal(packer_losses("shared", jobs, 2, counted), 0);
    assert_near(predicted(jobs, 2, 0), counted[0], 5e-4);
}

static void a_rule_without_a_stretch_is_predicted_as_shared(void **state)
{
    struct packer_resident jobs[] = {ending(5 * MS, 5 * MS, 5 * MS, 0),
                                     ending(5 * MS, 5 * MS, 5 * MS, 0)};
    double losses[2];

    assert_int_equal(packer_predict("rate", jobs, 2, losses), 0);
    assert_near(losses[0], 0.25 / 100.25, 1e-9);
}

static void a_prediction_makes_the_same_demands_as_a_rule(void **state)
{
    struct packer_resident job = ending(5 * MS, 9 * MS, 60 * MS, 0);
    double loss = 7;

    assert_int_equal(packer_predict("least-loaded", &job, 1, &loss), -EINVAL);
    job.timing.period_ns = 0;
    assert_int_equal(packer_predict("shared", &job, 1, &loss), -EINVAL);
    assert_near(loss, 7, 0);
    job = ending(10 * MS, 9 * MS, 60 * MS, 0); /* a burst is never longer than the round's work */
    assert_near(predicted(&job, 1, 0), 5.0 / 105, 1e-12);
}

static void an_overfull_lane_is_predicted_to_take_all(void **state)
{
    struct packer_resident *jobs = calloc(JOBS_MAX, sizeof(*jobs));
    double *losses = calloc(JOBS_MAX, sizeof(*losses));

    for (size_t i = 0; i < JOBS_MAX; i++)
        jobs[i] = share(0.9);
    jobs[0] = ending(90 * MS, 2 * MS, 60 * MS, 0);
    assert_int_equal(packer_predict("shared", jobs, JOBS_MAX, losses), 0);
    assert_near(losses[0], 1, 0);
    free(jobs);
    free(losses);
}

#define ROOM_OF(name)                                           \
    "the_room_of_" #name "_is_the_most_that_keeps_every_limit", \
        the_room_is_the_most_that_keeps_every_limit, NULL, NULL, (void *)&loss_##name

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_nodes_integrate_powers_to_factorials),
        cmocka_unit_test(two_jobs_both_lose_the_product_of_their_shares),
        cmocka_unit_test(the_largest_load_of_equal_jobs_is_that_of_the_table),
        cmocka_unit_test(the_sums_are_exact_to_a_hundred_and_fifty_jobs_at_any_load),
        cmocka_unit_test(the_rules_hold_up_to_a_full_lane),
        cmocka_unit_test(an_overfull_lane_loses_all_and_accepts_no_job),
        cmocka_unit_test(a_job_alone_loses_nothing_within_its_period),
        cmocka_unit_test(lane_time_beyond_the_measured_spread_lengthens_the_round),
        cmocka_unit_test(rate_looks_at_the_sum_alone),
        cmocka_unit_test(cycle_punishes_periods_that_do_not_divide),
        {ROOM_OF(shared)},
        {ROOM_OF(rate)},
        {ROOM_OF(cycle)},
        cmocka_unit_test(the_strictest_limit_that_is_named_wins),
        cmocka_unit_test(losses_are_predicted_by_the_named_policy),
        cmocka_unit_test(a_job_as_it_was_measured_is_predicted_to_lose_nothing),
        cmocka_unit_test(alone_only_the_last_burst_makes_the_round_longer),
        cmocka_unit_test(more_work_than_its_time_runs_into_one_burst),
        cmocka_unit_test(others_draw_the_last_burst_out),
        cmocka_unit_test(a_job_with_all_work_at_the_end_loses_as_the_rule_predicts),
        cmocka_unit_test(a_rule_without_a_stretch_is_predicted_as_shared),
        cmocka_unit_test(a_prediction_makes_the_same_demands_as_a_rule),
        cmocka_unit_test(an_overfull_lane_is_predicted_to_take_all),
    };

    return cmocka_run_group_tests_name("loss", tests, NULL, NULL);
}
